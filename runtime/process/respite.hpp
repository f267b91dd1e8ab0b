// SPDX-License-Identifier: Apache-2.0
// What a launcher gives the ranks of a job once one of them has failed: time, in which they say what it cost them or go
// on without it, and then an end. Runs on the event loop alone.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process/event_loop.hpp"

namespace rondo::process {

// "the other ranks went on without rank 2, which is stopped: it is told to end"
std::string left_behind_sentence(const std::vector<int>& ranks);

class Respite {
 public:
  // Ranks notice the loss of one by themselves and say what it cost them, or ask who survived: they get this long
  // before they are told to end.
  static constexpr std::chrono::milliseconds kSettle{250};

  // signal: to all ranks that run. grace: from the failure until who still runs is killed.
  Respite(EventLoop& loop, std::chrono::milliseconds grace, std::function<void(int signal)> signal)
      : loop_(loop), grace_(grace), signal_(std::move(signal)) {}

  int turn() const { return turn_; }  // how often they have gone on, or were started again
  bool told_to_end() const { return told_to_end_; }
  void later(EventLoop::Clock::duration delay, std::function<void()> handler);  // unless the next turn comes before
  void begin_next();
  void tell_to_end();  // once in a turn, kSettle after the failure
  // Those that run are stopped, and the others went on without them and have ended. In as many turns as they take to
  // end; until forget(), as those that then run are others.
  void end_left_behind();
  void forget() { ++lives_; }

 private:
  EventLoop& loop_;
  const std::chrono::milliseconds grace_;
  const std::function<void(int signal)> signal_;
  int turn_ = 0, lives_ = 0;
  bool told_to_end_ = false;
};

}  // namespace rondo::process
