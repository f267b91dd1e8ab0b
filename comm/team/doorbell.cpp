// SPDX-License-Identifier: Apache-2.0
#include "comm/team/doorbell.hpp"

#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rondo::comm {
namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

void Doorbells::prepare_sleep(int local_rank) const {
  if (membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)) {
    segment_.line(local_rank).fences_all.store(1, std::memory_order_release);
  }
}

void Doorbells::announce_sleep(int local_rank) const {
  sleeping(local_rank).store(1, std::memory_order_seq_cst);
  fence(local_rank);
}

// What this rank looks at next may elsewhere than on x86 pass even such a store: neither side would see the other's.
void Doorbells::fence(int local_rank) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const RankLine& line = segment_.line(local_rank);
  if (line.fences_all.load(std::memory_order_relaxed) != 0) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

bool Doorbells::sleepers_fence() const {
  for (int r = 0; r < segment_.local_size(); ++r) {
    if (segment_.line(r).fences_all.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

// EAGAIN (a counter at its maximum, or nothing to drain) is as good as success: the bell has rung.
void Doorbells::ring(int local_rank) const { static_cast<void>(eventfd_write(fd(local_rank), 1)); }
void Doorbells::ring_all() const {
  for (const Fd& bell : *bells_) static_cast<void>(eventfd_write(bell.get(), 1));
}
void Doorbells::ring_both(int local_rank) const {
  const auto ranks = static_cast<std::size_t>(segment_.local_size());
  for (auto bell = static_cast<std::size_t>(local_rank); bell < bells_->size(); bell += ranks)
    static_cast<void>(eventfd_write((*bells_)[bell].get(), 1));
}
Doorbells Doorbells::of_messages() const {
  Doorbells others = *this;
  others.first_ = static_cast<std::size_t>(segment_.local_size());
  return others;
}
void Doorbells::drain(int local_rank) const {
  eventfd_t count = 0;
  static_cast<void>(eventfd_read(fd(local_rank), &count));
}

}  // namespace rondo::comm
