// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/respite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <csignal>

#include <utility>

namespace rondo::process {

std::string left_behind_sentence(const std::vector<int>& ranks) {
  return ranks.size() == 1
             ? fmt::format("the other ranks went on without rank {}, which is stopped: it is told to end",
                           ranks.front())
             : fmt::format("the other ranks went on without ranks {}, which are stopped: they are told to end",
                           fmt::join(ranks, ", "));
}

void Respite::later(EventLoop::Clock::duration delay, std::function<void()> handler) {
  loop_.at(EventLoop::Clock::now() + delay, [this, turn = turn_, handler = std::move(handler)] {
    if (turn == turn_) handler();
  });
}

void Respite::begin_next() {
  told_to_end_ = false;
  ++turn_;
}

void Respite::tell_to_end() {
  if (std::exchange(told_to_end_, true)) return;
  if (grace_ <= kSettle) return signal_(SIGKILL);
  signal_(SIGTERM);
  later(grace_ - kSettle, [this] { signal_(SIGKILL); });
}

// What is stopped has the signal when it goes on.
void Respite::end_left_behind() {
  signal_(SIGTERM);
  signal_(SIGCONT);
  loop_.at(EventLoop::Clock::now() + grace_, [this, lives = lives_] {
    if (lives == lives_) signal_(SIGKILL);
  });
}

}  // namespace rondo::process
