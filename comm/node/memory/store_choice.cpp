// SPDX-License-Identifier: Apache-2.0
#include "comm/node/memory/store_choice.hpp"

#include <algorithm>
#include <utility>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {
namespace {

constexpr std::uint32_t kFirstLooks = 16;  // one after the other
constexpr std::uint32_t kRest = 16;        // chunks between later ones: a look takes as long as a few lines
constexpr int kFarWeight = 2, kNearWeight = 1, kMostWeight = 15;

}  // namespace

// AMD: most take 20 to 90 where cores share a cache, 130 and more where not. Intel's share one on
// a mesh: 90 to 145, more after a switch, and nothing was ever faster past the caches; two sockets were not measured.
double DistanceEstimate::machine_far_ns() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") != 0) return 1000;
#endif
  return 110;
}

void DistanceEstimate::add(double ns) {
  weight_ = std::clamp(weight_ + (ns > far_ns_ ? kFarWeight : -kNearWeight), 0, kMostWeight);
  if (weight_ == 0) far_ = false;
  if (weight_ >= kMostWeight / 2) far_ = true;
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
  if (bytes < threshold::kLeastWeighed) return kernels::Stores::plain;
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
  until_look_ = looks_ < kFirstLooks ? 1 : kRest;
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
