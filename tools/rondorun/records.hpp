// SPDX-License-Identifier: Apache-2.0
// What the ranks of this node did last, as they say it themselves over a socket each: when a communicator of theirs
// fails, and when they are asked. Runs on the event loop alone.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"

namespace rondo::launcher {

class Records {
 public:
  using Time = process::EventLoop::Clock::time_point;
  explicit Records(process::EventLoop& loop) : loop_(loop) {}
  ~Records() { clear(); }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  Fd open(int rank);  // the rank's end; none where the system has none to give
  void clear();       // these ranks have ended, and others take their numbers
  void ask();         // every rank; who has no communicator does not answer
  // The same, and `done` when all have answered, or 1 s later: with what they answered since it was asked.
  using Answers = std::map<int, std::string>;
  void ask(std::function<void(const Answers&)> done);
  void take_all();  // that has come by now
  void forget();    // what has been said: it is about a failure of the past
  // A document, as the rank wrote it when it failed, or else when it was asked then or later; empty: none.
  std::string latest(int rank, Time asked) const;

 private:
  struct Rank {
    Fd socket{};
    std::string of_failure{}, when_asked{};
    Time answered{};
  };
  void take(Rank& rank);
  void tell_at(Time time);
  void tell_if_answered();

  process::EventLoop& loop_;
  std::map<int, Rank> ranks_;
  std::vector<std::function<void(const Answers&)>> waiting_;  // all for one question
  Time asked_{};                                              // when it was put
  int questions_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // for timers
};

}  // namespace rondo::launcher
