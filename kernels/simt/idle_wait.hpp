// SPDX-License-Identifier: Apache-2.0
// How an OS thread waits while all its lanes wait for words that other threads or processes write: nobody will wake it,
// so it looks again and again, ever more seldom: after 50 us it sleeps, about an eighth of the time waited so far.
#pragma once
#include <cstdint>

namespace rondo::simt {

std::uint64_t clock_ns();

class IdleWait {
 public:
  explicit IdleWait(unsigned watchdog_s) : watchdog_ns_(watchdog_s * 1'000'000'000ull) {}

  enum class Advice : std::uint8_t { poll, let_lanes_look, give_up };
  Advice wait();                   // for a while that grows; what to do then
  void reset() { since_ns_ = 0; }  // something has moved

 private:
  std::uint64_t watchdog_ns_;
  std::uint64_t since_ns_ = 0;  // 0: not waiting
  std::uint64_t next_look_ns_ = 0;
  unsigned rounds_ = 0;
};

}  // namespace rondo::simt
