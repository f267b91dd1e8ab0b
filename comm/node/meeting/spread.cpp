// SPDX-License-Identifier: Apache-2.0
#include "comm/node/meeting/spread.hpp"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {
namespace {

using threshold::kLooksBeforeMove;

std::optional<cpu_set_t> allowed_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::nullopt;
  return allowed;
}

}  // namespace

Spread::Spread(Segment segment, int own_index) : segment_(segment), own_(own_index), looks_(kLooksBeforeMove) {
  const auto allowed = allowed_cores();
  const int cores = allowed ? std::max(1, CPU_COUNT(&*allowed)) : 1;
  share_ = (segment.local_size() + cores - 1) / cores;
}

void Spread::note() {
  core_ = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  std::atomic<std::uint32_t>& mine = segment_.line(own_).core;
  if (mine.load(std::memory_order_relaxed) != core_) mine.store(core_, std::memory_order_relaxed);
}

bool Spread::look() {
  note();
  turn_ = cores_before();
  bool last = core_ != 0;  // of the ranks here: that one goes
  for (int index = own_ + 1; index < segment_.local_size(); ++index) last = last && !is_beside(index);
  seen_ = last && ranks_on(core_) > share_ ? seen_ + 1 : 0;
  if (seen_ < looks_) return false;
  seen_ = 0;
  looks_ = std::min(2 * looks_, threshold::kMostLooksBeforeMove);
  return leave();
}

int Spread::cores_before() const {
  int cores = 0;
  for (int index = 0; index < segment_.local_size(); ++index) {
    const std::uint32_t core = segment_.line(index).core.load(std::memory_order_relaxed);
    bool is_first = core != 0 && core < core_;
    for (int other = 0; is_first && other < index; ++other) is_first = !is_on(other, core);
    cores += is_first ? 1 : 0;
  }
  return cores;
}

int Spread::ranks_on(std::uint32_t core) const {
  int ranks = 0;
  for (int index = 0; index < segment_.local_size(); ++index) ranks += is_on(index, core) ? 1 : 0;
  return ranks;
}

bool Spread::leave() const {
  const auto allowed = allowed_cores();
  if (!allowed) return false;
  int fewest = ranks_on(core_) - 1, to = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &*allowed)) continue;
    const int ranks = ranks_on(static_cast<std::uint32_t>(core + 1));
    if (ranks >= fewest) continue;
    fewest = ranks;
    to = core;
  }
  if (to < 0) return false;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(to, &there);
  const bool went = ::sched_setaffinity(0, sizeof there, &there) == 0;
  return ::sched_setaffinity(0, sizeof *allowed, &*allowed) == 0 && went;
}

}  // namespace rondo::comm
