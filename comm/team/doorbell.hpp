// SPDX-License-Identifier: Apache-2.0
// Wakes ranks of this node that sleep: an eventfd each, written only when the sleeper said so in its line; and another
// for who waits for messages, which may be another thread at the same time.
#pragma once
#include <memory>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

class Doorbells {
 public:
  Doorbells() = default;
  // `bells`: of the ranks in the segment, in order, and then those for their messages (tests of collectives: without).
  Doorbells(Segment segment, std::shared_ptr<const std::vector<Fd>> bells)
      : segment_(segment), bells_(std::move(bells)) {}
  Doorbells of_messages() const;  // the same, to wait for messages and to wake who does

  // After a sequentially consistent store that the rank may be waiting for, or a fence. The sleeper announces it and
  // looks once more before it sleeps, so one of the two sees the other.
  void wake(int local_rank) const {
    if (sleeping(local_rank).load(std::memory_order_seq_cst) != 0) ring(local_rank);
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
  void ring_all() const;  // for whatever they wait
  void ring_both(int local_rank) const;
  int fd(int local_rank) const { return (*bells_)[first_ + static_cast<std::size_t>(local_rank)].get(); }
  std::atomic<std::uint32_t>& sleeping(int local_rank) const {
    RankLine& line = segment_.line(local_rank);
    return first_ == 0 ? line.sleeping : line.sleeping_in_messages;
  }
  void drain(int local_rank) const;

 private:
  Segment segment_;
  std::shared_ptr<const std::vector<Fd>> bells_;
  std::size_t first_ = 0;  // of bells_
};

}  // namespace rondo::comm
