// SPDX-License-Identifier: Apache-2.0
// Wakes ranks of this node that sleep: an eventfd each, written only when the sleeper said so in its line.
#pragma once
#include <memory>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

class Doorbells {
 public:
  Doorbells() = default;
  Doorbells(Segment segment, std::shared_ptr<const std::vector<Fd>> bells)
      : segment_(segment), bells_(std::move(bells)) {}

  // After a sequentially consistent store that the rank may be waiting for, or a fence. The sleeper announces it and
  // looks once more before it sleeps, so one of the two sees the other.
  void wake(int local_rank) const {
    if (segment_.line(local_rank).sleeping.load(std::memory_order_seq_cst) != 0) ring(local_rank);
  }
  // Before the first announce_sleep(): from then on, where the kernel lets us (membarrier), whoever announces sleep
  // makes every core fence that runs a rank.
  void prepare_sleep(int local_rank) const;
  void announce_sleep(int local_rank) const;
  // Of this rank, and where all have prepared, of every other: between its store and what it looks at next, and
  // between theirs.
  void fence(int local_rank) const;
  // True, once all ranks have prepared, when all of them do that: then it takes no fence before wake().
  bool sleepers_fence() const;
  void ring(int local_rank) const;
  void ring_all() const;
  int fd(int local_rank) const { return (*bells_)[static_cast<std::size_t>(local_rank)].get(); }
  void drain(int local_rank) const;

 private:
  Segment segment_;
  std::shared_ptr<const std::vector<Fd>> bells_;
};

}  // namespace rondo::comm
