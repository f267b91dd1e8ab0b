// SPDX-License-Identifier: Apache-2.0
// How a rank writes what others read: through its caches, or past them. Past them is several times faster when the
// reader's core is far, which shares no cache with the writer's, and slower when it is near; and cores may move. So
// readers time now and then how long a line takes that a peer has just written, and tell everybody what they found.
// Bits never depend on it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/base/ticks.hpp"
#include "comm/team/segment.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

// What a rank makes of the times that single lines took.
class DistanceEstimate {
 public:
  // Of the processor that this runs on: longer than a line takes where cores share a cache.
  static double machine_far_ns();
  explicit DistanceEstimate(double far_ns = machine_far_ns()) : far_ns_(far_ns) {}
  // Most of the peers may be on the reader's own core, and what a far one wrote is then seen the more rarely; a near
  // line takes long when the reader was interrupted.
  void add(double ns);
  bool far() const { return far_; }

 private:
  double far_ns_;
  int weight_ = 0;
  bool far_ = false;
};

class StoreChoice {
 public:
  // `crowded`: ranks outnumber their cores, so that they say at every meeting where they are.
  StoreChoice(Segment segment, int own_index, bool crowded);

  kernels::Stores stores(std::size_t bytes) const;              // of what all peers read
  kernels::Stores stores(std::size_t bytes, int reader) const;  // of what that one reads alone
  void wrote() {                                                // a chunk for others
    segment_.distance(own_).written.store(++written_, std::memory_order_relaxed);
  }
  void read() {  // a chunk of others', which they wrote just now
    if (--until_look_ == 0) look();
  }

 private:
  void look();

  Segment segment_;
  int own_, size_, peer_;
  bool crowded_;
  std::uint64_t written_ = 0;
  std::vector<std::uint64_t> seen_;  // of what they wrote, by rank
  std::uint32_t until_look_ = 1, looks_ = 0;
  DistanceEstimate estimate_;
  TickScale scale_;
};

}  // namespace rondo::comm
