// SPDX-License-Identifier: Apache-2.0
#include "comm/node/memory/store_choice.hpp"

#include <algorithm>
#include <utility>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {
using namespace threshold;

double DistanceEstimate::machine_far_ns() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") != 0) return kNeverFarNs;
#endif
  return kFarNs;
}

void DistanceEstimate::add(double ns) {
  weight_ = std::clamp(weight_ + (ns > far_ns_ ? kFarWeight : -1), 0, kMostFarWeight);
  if (weight_ == 0) far_ = false;
  if (weight_ >= kMostFarWeight / 2) far_ = true;
}

StoreChoice::StoreChoice(Segment segment, int own_index, bool crowded)
    : segment_(segment),
      own_(own_index),
      size_(segment.local_size()),
      peer_(own_index),
      crowded_(crowded),
      seen_(as_size(segment.local_size())) {}

// One reader that is far from its peers is enough. What this rank found counts for the others: where it only writes, it
// has not looked for long.
kernels::Stores StoreChoice::stores(std::size_t bytes) const {
  if (bytes < kLeastWeighed) return kernels::Stores::plain;
  for (int r = 0; r < size_; ++r) {
    if (r != own_ && segment_.distance(r).far.load(std::memory_order_relaxed) != 0) return kernels::Stores::streaming;
  }
  return kernels::Stores::plain;
}

// However far the others are: whoever reads on this rank's core finds it in this core's caches. Where ranks have a core
// each, what they once said of it may be long past.
kernels::Stores StoreChoice::stores(std::size_t bytes, int reader) const {
  const auto core_of = [&](int r) { return segment_.line(r).core.load(std::memory_order_relaxed); };
  const std::uint32_t core = core_of(own_);
  return crowded_ && core != 0 && core_of(reader) == core ? kernels::Stores::plain : stores(bytes);
}

// A line that was not written since is in this rank's own cache, and tells nothing.
void StoreChoice::look() {
  until_look_ = looks_ < kFirstDistances ? 1 : kChunksPerDistance;
  peer_ = (peer_ + 1) % size_;
  if (peer_ == own_) peer_ = (peer_ + 1) % size_;
  const DistanceLine& line = segment_.distance(peer_);
  const std::uint64_t begun = read_ticks_in_order();
  const std::uint64_t written = line.written.load(std::memory_order_relaxed);
  const std::uint64_t ended = read_ticks_in_order();
  if (written == std::exchange(seen_[as_size(peer_)], written)) return;
  ++looks_;
  const auto us = scale_.to_microseconds();
  estimate_.add((us(ended) - us(begun)) * 1e3);
  auto& far = segment_.distance(own_).far;
  if ((far.load(std::memory_order_relaxed) != 0) != estimate_.far())
    far.store(estimate_.far(), std::memory_order_relaxed);
}

}  // namespace rondo::comm
