// SPDX-License-Identifier: Apache-2.0
// Lines that several ranks wrote at about the same time, as those do that lost another: said once, for all of them.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::launcher {

class Fold {
 public:
  using OnLine = std::function<void(std::string_view prefix, std::string_view text)>;
  // rank -1: only keeps its place.
  void add(int rank, std::string_view prefix, std::string_view text);
  // All of it, in the order in which it came; folded in that of the first ones.
  void release(bool folded, const OnLine& on_line);
  bool empty() const { return lines_.empty(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Line {
    int rank;
    std::string prefix, text;
  };
  std::vector<Line> lines_;
  std::size_t bytes_ = 0;
};

}  // namespace rondo::launcher
