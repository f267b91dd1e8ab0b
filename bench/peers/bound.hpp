// SPDX-License-Identifier: Apache-2.0
// What the bounds of both transports share. A bound is a library that does only what any library with these processes
// on these cores must do: no signatures, no failures, no choice of algorithm, nothing beyond the cells measured here.
// Its system calls are ours.
// What it reaches can be reached; that nothing is faster it does not prove.
#pragma once
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "collective.hpp"
#include "comm/base/system_call.hpp"

namespace rondo::peers {

// For this process and those that it forks.
inline std::byte* shared_memory(std::size_t bytes) {
  const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) std::perror("mmap"), std::exit(2);
  return static_cast<std::byte*>(memory);
}

// Pins this process to one of the cores that it may use, the rank-th in turns. How many there are.
inline int pin_in_turns(int rank) {
  cpu_set_t all, one;
  ::sched_getaffinity(0, sizeof all, &all);
  int left = rank % CPU_COUNT(&all);
  unsigned core = 0;
  while (!CPU_ISSET(core, &all) || left-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  return CPU_COUNT(&all);
}

// Where the ranks run: as many on each core, rank r beside rank r + cores. How one waits.
class Cores {
 public:
  // has_core: there is one for every rank. ahead: see give_way().
  Cores(int rank, int np, bool has_core, bool ahead = false)
      : rank_(rank), np_(np), cores_(pin_in_turns(rank)), has_core_(has_core), ahead_(ahead) {}

  bool has_core() const { return has_core_; }
  int count() const { return cores_; }
  // is_ready: what is waited for. is_done(other): that rank needs no core before it happens. While nobody else needs
  // the core, looks that are made at once find it sooner than one that the core comes back for.
  template <class Ready, class Done>
  void until(Ready is_ready, Done is_done) const {
    for (int look = 1; !is_ready(); ++look) {
      if (has_core_ || (look % kLooks != 0 && all_beside(is_done))) {
        pause();
      } else {
        yield_cpu();
      }
    }
  }
  // Where everybody waits for everybody. With more ranks than cores: else who came last would go on at once, and be the
  // first in the next call, for which the others then wait a turn longer; who may run ahead does so, and saves a switch
  // in calls in a row. With a core each: a look that comes at once takes the other's line away just when that comes to
  // write there.
  void give_way() const {
    if (has_core_) return pause();
    if (!ahead_) yield_cpu();
  }
  template <class Ready>
  void until(Ready is_ready) const {
    until(is_ready, [](int) { return false; });
  }

 private:
  static constexpr int kLooks = 200;

  template <class Done>
  bool all_beside(Done is_done) const {
    for (int other = rank_ % cores_; other < np_; other += cores_) {
      if (other != rank_ && !is_done(other)) return false;
    }
    return true;
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int rank_, np_, cores_;
  bool has_core_, ahead_;
};

// each(first, count) for pieces of `step` at most. Calls go forwards and backwards by turns: what the caches still hold
// of one is what the next one begins with.
template <class Each>
void sweep(std::size_t count, std::size_t step, bool backwards, Each each) {
  const std::size_t pieces = (count + step - 1) / step;
  for (std::size_t nth = 0; nth < pieces; ++nth) {
    const std::size_t first = (backwards ? pieces - 1 - nth : nth) * step;
    each(first, std::min(step, count - first));
  }
}

// Whether a call leaves so little of its buffers in the caches that it pays to turn round.
inline bool outgrows_caches(const Cell& cell, bool has_core) {
  return cell.count * sizeof(float) * static_cast<std::size_t>(cell.np) >= std::size_t{has_core ? 1U : 2U} << 20;
}

// a may be to.
inline void add(float* to, const float* a, const float* b, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

}  // namespace rondo::peers
