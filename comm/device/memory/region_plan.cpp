// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/device/memory/regions.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::FifoShape;
using kernels::device::RegionLayout;

constexpr std::uint32_t kSlotUnit = 512;

// What gives way first, from top to bottom: slots down to where a block still has a vector or two per thread and FIFOs
// still pipeline, then channels, then whatever is left. With one slot a fused ring stands still.
struct Rung {
  std::uint32_t FifoShape::*field;
  std::uint32_t least;
  int first, last;  // protocols
};
constexpr std::uint32_t FifoShape::*kSlots = &FifoShape::slots;
constexpr std::uint32_t FifoShape::*kBytes = &FifoShape::slot_bytes;
constexpr Rung kLadder[] = {{kSlots, 4, 0, 0}, {kBytes, 16384, 0, 0}, {kBytes, 4096, 1, 2}};
constexpr int kPipelinedChannels = 8;
constexpr Rung kLastRungs[] = {{kBytes, 1024, 0, 2}, {kSlots, 2, 0, 2}};

// Halves the largest of the rung's that is above its least.
bool descend(RegionLayout& layout, const Rung& rung) {
  FifoShape* const largest =
      std::max_element(layout.fifo + rung.first, layout.fifo + rung.last + 1,
                       [&](const FifoShape& a, const FifoShape& b) { return a.*rung.field < b.*rung.field; });
  std::uint32_t& field = largest->*rung.field;
  if (field <= rung.least) return false;
  const std::uint32_t unit = rung.field == kBytes ? kSlotUnit : 1;
  field = std::max(rung.least, (field / 2 + unit - 1) / unit * unit);
  return true;
}

bool shrink(RegionLayout& layout) {
  for (const Rung& rung : kLadder) {
    if (descend(layout, rung)) return true;
  }
  if (layout.channels > kPipelinedChannels) {
    layout.channels /= 2;
    return true;
  }
  for (const Rung& rung : kLastRungs) {
    if (descend(layout, rung)) return true;
  }
  if (layout.channels == 1) return false;
  layout.channels /= 2;
  return true;
}

// At most an eighth of the memory; 0 where that is too little for one.
int push_blocks_for(RegionLayout layout, const Settings& settings, BlockShare share) {
  layout.push_blocks = std::min(settings.push_blocks, share.blocks);
  while (layout.push_blocks > 0 && layout.inbox_bytes() > settings.device_bytes / 8) --layout.push_blocks;
  return layout.push_blocks;
}

}  // namespace

RegionPlan plan_regions(int world_size, const Settings& settings, BlockShare share, bool one_island, bool whole_lines) {
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
  if (one_island) layout.push_blocks = push_blocks_for(layout, settings, share);
  if (!one_island) std::fill(std::begin(layout.fifo) + 1, std::end(layout.fifo), FifoShape{});
  if (!whole_lines) layout.fifo[static_cast<int>(kernels::device::Protocol::ll128)] = {};
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
