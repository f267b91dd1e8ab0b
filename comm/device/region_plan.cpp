// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/device/regions.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::FifoShape;
using kernels::device::RegionLayout;

constexpr std::uint32_t kLeastSlotBytes = 1024;
constexpr std::uint32_t kLeastSlots = 2;  // with fewer a fused ring stands still
constexpr std::uint32_t kSlotUnit = 512;

// One step down: the longest slots are halved, then the most slots, then the channels. False: there is nothing left.
bool shrink(RegionLayout& layout) {
  const auto longest = std::max_element(std::begin(layout.fifo), std::end(layout.fifo),
                                        [](const auto& a, const auto& b) { return a.slot_bytes < b.slot_bytes; });
  if (longest->slot_bytes > kLeastSlotBytes) {
    longest->slot_bytes = std::max(kLeastSlotBytes, (longest->slot_bytes / 2 + kSlotUnit - 1) / kSlotUnit * kSlotUnit);
    return true;
  }
  const auto most = std::max_element(std::begin(layout.fifo), std::end(layout.fifo),
                                     [](const auto& a, const auto& b) { return a.slots < b.slots; });
  if (most->slots > kLeastSlots) {
    most->slots /= 2;
    return true;
  }
  if (layout.channels == 1) return false;
  layout.channels /= 2;
  return true;
}

}  // namespace

RegionPlan plan_regions(int world_size, const Settings& settings, BlockShare share, bool one_island) {
  if (world_size > kernels::device::kMaxRanks) {
    throw Error(ErrorCode::unsupported, fmt::format("a communicator on devices has at most {} ranks, not {}: split it",
                                                    kernels::device::kMaxRanks, world_size));
  }
  RegionPlan plan;
  RegionLayout& layout = plan.layout;
  layout.world_size = world_size;
  layout.channels = share.channels;
  layout.blocks = share.blocks;
  std::copy(std::begin(settings.fifo), std::end(settings.fifo), std::begin(layout.fifo));
  if (!one_island) std::fill(std::begin(layout.fifo) + 1, std::end(layout.fifo), FifoShape{});
  plan.staging_bytes = std::min(settings.staging_bytes, settings.device_bytes / 4) / kSlotUnit * kSlotUnit;
  const std::size_t bound = settings.device_bytes - plan.staging_bytes - kSlotUnit;
  while (layout.bytes() > bound) {
    if (shrink(layout)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("RONDO_DEVICE_BYTES={} is too little for {} ranks: their links take {} bytes at the least",
                            settings.device_bytes, world_size, layout.bytes()));
  }
  return plan;
}

}  // namespace rondo::comm::device
