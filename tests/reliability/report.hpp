// SPDX-License-Identifier: Apache-2.0
// What a subject prints: rows as they come, then a verdict for every bound.
#pragma once
#include <chrono>
#include <cstddef>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

namespace rondo::test {

// How much of a subject is wanted.
struct Given {
  std::size_t count = 0;  // what is counted, the subject says
  std::chrono::seconds duration{0};
  unsigned seed = 0;
  std::string phase{}, place{};  // of moments: these alone; empty and -1: all
  int rank = -1;
  unsigned call = 0;
};

// Times in ms, in any order.
class Times {
 public:
  void add(double ms) { all_.push_back(ms); }
  void add(const Times& more) { all_.insert(all_.end(), more.all_.begin(), more.all_.end()); }
  std::size_t count() const { return all_.size(); }
  double at(double share) const;       // 0.5 is the median, 1 the longest; 0 where there are none
  std::string row(int width) const;    // number, p50, p99 and the longest, in columns
  static std::string head(int width);  // what those columns are
 private:
  std::vector<double> all_;
};

// Threads may share one.
class Report {
 public:
  explicit Report(bool busy) : busy_(busy) {}
  void say(const std::string& line);
  // Of times; on a busy machine it is said and not judged.
  void at_most(const std::string& what, double value, double limit, const std::string& unit);
  void none(const std::string& what, std::size_t value, std::size_t of);
  bool holds() const { return broken_ == 0; }

 private:
  void verdict(bool held, const std::string& sentence);
  std::mutex mutex_;
  const bool busy_;
  int broken_ = 0;
};

}  // namespace rondo::test
