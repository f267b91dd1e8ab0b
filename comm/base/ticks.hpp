// SPDX-License-Identifier: Apache-2.0
// A clock that costs a few nanoseconds to read and counts in units of its own; a TickScale turns them into time.
#pragma once
#include <chrono>
#include <cstdint>

namespace rondo {

inline std::uint64_t read_ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// What a reading takes, in nanoseconds: the least of some tries, for others are interrupted.
inline double ns_per_reading() {
  constexpr int kTries = 8, kReadings = 64;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  double least = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const auto start = now();
    for (int reading = 0; reading < kReadings; ++reading) static_cast<void>(read_ticks());
    const double took = std::chrono::duration<double, std::nano>(now() - start).count() / kReadings;
    least = took < least ? took : least;
  }
  return least;
}

// As read_ticks(), after all that comes before it, and before all that comes after it; stores may be on their way
// still.
inline std::uint64_t read_ticks_in_order() {
  const auto settle = [] {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  };
  settle();
  const std::uint64_t ticks = read_ticks();
  settle();
  return ticks;
}

// Both clocks were read together once, and are read together again when a time is asked for: the longer ago, the
// better. Times are those of steady_clock.
class TickScale {
 public:
  TickScale() : ticks_(read_ticks()), time_us_(now_us()) {}
  // As of now.
  double us_per_tick() const {
    const double ticks_passed = static_cast<double>(read_ticks() - ticks_);
    return ticks_passed > 0 ? (now_us() - time_us_) / ticks_passed : 0;
  }
  auto to_microseconds() const {
    return [*this, us_per_tick = us_per_tick()](std::uint64_t ticks) {
      return time_us_ + us_per_tick * (static_cast<double>(ticks) - static_cast<double>(ticks_));
    };
  }

 private:
  static double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  std::uint64_t ticks_;
  double time_us_;
};

}  // namespace rondo
