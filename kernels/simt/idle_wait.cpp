// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/idle_wait.hpp"

#include <sched.h>
#include <time.h>

namespace rondo::simt {
namespace {

constexpr std::uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000;
constexpr unsigned kSpinRounds = 4;
constexpr std::uint64_t kAwake = 50 * kMicrosecond;

void relax() {
#if defined(__x86_64__)
  for (int i = 0; i < 32; ++i) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < 32; ++i) asm volatile("yield");
#endif
}

std::uint64_t clamp(std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  return value < low ? low : value > high ? high : value;
}

void sleep_for(std::uint64_t ns) {
  const timespec duration{.tv_sec = 0, .tv_nsec = static_cast<long>(ns)};
  nanosleep(&duration, nullptr);
}

}  // namespace

std::uint64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

IdleWait::Advice IdleWait::wait() {
  const std::uint64_t now = clock_ns();
  if (since_ns_ == 0) {
    since_ns_ = now;
    next_look_ns_ = now + kMillisecond;
    rounds_ = 0;
  }
  const std::uint64_t waited = now - since_ns_;
  if (waited > watchdog_ns_) return Advice::give_up;
  if (now >= next_look_ns_) {
    next_look_ns_ = now + clamp(waited / 8, kMillisecond, 10 * kMillisecond);
    return Advice::let_lanes_look;
  }
  if (rounds_ < kSpinRounds) {
    ++rounds_;
    relax();
  } else if (waited < kAwake) {
    sched_yield();  // there may be more ranks than cores
  } else {
    sleep_for(clamp(waited / 8, 20 * kMicrosecond, kMillisecond));
  }
  return Advice::poll;
}

}  // namespace rondo::simt
