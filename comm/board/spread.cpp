// SPDX-License-Identifier: Apache-2.0
#include "comm/board/spread.hpp"

#include <sched.h>

namespace rondo::comm {
namespace {

constexpr int kLooks = 8;  // one may be of yesterday: a rank says where it is only while it waits

}  // namespace

void Spread::look(int awaited) {
  const auto core = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  std::atomic<std::uint32_t>& mine = segment_.line(own_).core;
  if (mine.load(std::memory_order_relaxed) != core) mine.store(core, std::memory_order_relaxed);
  const bool together = core != 0 && segment_.line(awaited).core.load(std::memory_order_relaxed) == core;
  together_ = together && own_ > awaited ? together_ + 1 : 0;  // one of the two goes
  if (together_ < kLooks) return;
  together_ = 0;
  leave();
}

void Spread::leave() const {
  cpu_set_t allowed, there;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (int r = 0; r < segment_.local_size(); ++r) {
    const std::uint32_t core = segment_.line(r).core.load(std::memory_order_relaxed);
    if (core != 0) CPU_CLR(core - 1, &free);
  }
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &free)) continue;
    CPU_ZERO(&there);
    CPU_SET(core, &there);
    ::sched_setaffinity(0, sizeof there, &there);
    ::sched_setaffinity(0, sizeof allowed, &allowed);
    return;
  }
}

}  // namespace rondo::comm
