// SPDX-License-Identifier: Apache-2.0
// How far apart the machine's first two cores are: one-way latency of a flag, in ns. Ranks that outnumber the cores
// cannot measure it between themselves, so the driver runs this before and after their launches.
#include <sched.h>

#include <thread>

#include "meeting.hpp"

namespace {

constexpr std::uint32_t kFlags = 3000;
alignas(128) std::atomic<std::uint32_t> ping, pong;

void pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void bounce(std::atomic<std::uint32_t>& mine, std::atomic<std::uint32_t>& other, bool first) {
  const double end = rondo::peers::now() + 0.1;
  for (std::uint32_t i = 1; i <= kFlags; ++i) {
    if (first) mine.store(i, std::memory_order_release);
    for (int poll = 1; other.load(std::memory_order_acquire) < i; ++poll) {
      if (poll % 4096 == 0 && rondo::peers::now() > end) return;
    }
    if (!first) mine.store(i, std::memory_order_release);
  }
}

}  // namespace

int main() {
  std::thread other([] {
    pin(1);
    bounce(pong, ping, false);
  });
  pin(0);
  const double begin = rondo::peers::now();
  bounce(ping, pong, true);
  const double seconds = rondo::peers::now() - begin;
  other.join();
  std::printf("%.0f\n", pong.load() == kFlags ? seconds / kFlags / 2 * 1e9 : 0.0);
}
