// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/placement.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "comm/base/cpu_quota.hpp"
#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More cores than a cpu_set_t holds: then there are plenty.
  const int allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
  return within_quota(allowed);
}

int within_quota(int cores) {
  const double quota = cpu_quota();
  return quota < cores ? std::max(1, static_cast<int>(quota)) : cores;
}

std::vector<std::byte> usable_core_mask() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) std::memset(&set, 0xff, sizeof set);
  std::vector<std::byte> mask(sizeof set);
  std::memcpy(mask.data(), &set, sizeof set);
  return mask;
}

int count_cores(std::span<const std::vector<std::byte>> masks) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const auto& mask : masks) {
    cpu_set_t one;
    CPU_ZERO(&one);
    std::memcpy(&one, mask.data(), std::min(mask.size(), sizeof one));
    CPU_OR(&all, &all, &one);
  }
  return CPU_COUNT(&all);
}

FifoShape fit_fifos(const Config& config, int local_size) {
  using namespace threshold;
  FifoShape shape{.slots = config.slots, .slice_bytes = config.slice_bytes};
  const auto ranks = static_cast<std::uint64_t>(local_size);
  while (shape.ring_bytes * ranks > kAllRings && shape.ring_bytes > kEnoughRing) shape.ring_bytes /= 2;
  const std::uint64_t fair = config.segment_bytes / 2 / ranks;
  while (shape.ring_bytes > fair && shape.ring_bytes > kLeastRing) shape.ring_bytes /= 2;
  const auto is_too_large = [&] { return Segment::bytes_without_messages(local_size, shape) > config.segment_bytes; };
  while (is_too_large() && shape.slots > 2) --shape.slots;
  while (is_too_large() && shape.slice_bytes > 1024) shape.slice_bytes /= 2;
  shape.slice_bytes = (shape.slice_bytes + 63) / 64 * 64;
  return shape;
}

}  // namespace rondo::comm
