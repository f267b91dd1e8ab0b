// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/terms.hpp"

#include "comm/device/memory/regions.hpp"

namespace rondo::comm::device {
namespace {

std::size_t slots_bytes(const kernels::device::RegionLayout& layout) {
  const auto simple = kernels::device::Protocol::simple;
  const kernels::device::FifoShape& shape = layout.fifo[static_cast<int>(simple)];
  return std::size_t{shape.slots} * kernels::device::slot_capacity(simple, shape.slot_bytes) *
         static_cast<std::size_t>(layout.channels);
}

bool is_time_sliced(const DeviceCards& cards) {
  for (int r = 0; r < cards.size(); ++r) {
    if (cards.time_sliced(r)) return true;
  }
  return false;
}

// As the kernel over windows cuts it: half the staging area, a part of that for each block, of it one for each rank.
std::size_t round_bytes(const Regions& regions) {
  const auto blocks = static_cast<std::size_t>(regions.layout().blocks),
             ranks = static_cast<std::size_t>(regions.layout().world_size);
  constexpr std::size_t kLine = kernels::device::kLine;
  const std::size_t half = regions.staging_bytes() / blocks / (2 * kLine) * kLine;
  return half / ranks / kLine * kLine * ranks * blocks;
}

}  // namespace

Terms agree(const Regions& regions, const Options& options, const Config& config) {
  const kernels::device::RegionLayout& layout = regions.layout();
  Terms terms{.world_size = layout.world_size,
              .windows = regions.one_island() && !regions.in_pairs() && regions.api().kernels.window != nullptr,
              .determinism = options.determinism,
              .algorithm = config.algorithm,
              .protocol = config.protocol,
              .channels = layout.channels,
              .blocks = layout.blocks,
              .threads = regions.cards().settings().threads,
              .push_bytes =
                  regions.one_island() && !regions.in_pairs() ? kernels::device::push_capacity(layout.push_blocks) : 0,
              .time_sliced = is_time_sliced(regions.cards()),
              .round_bytes = round_bytes(regions),
              .slots_bytes = slots_bytes(layout),
              .push_most = config.tuning.device_push_bytes,
              .push_block_most = config.tuning.device_push_block_bytes,
              .one_shot_most = config.tuning.device_one_shot_bytes,
              .window_most = config.tuning.device_window_bytes,
              .ll_most = config.tuning.device_ll_bytes,
              .ll128_most = config.tuning.device_ll128_bytes};
  for (int p = 0; p < kernels::device::kProtocolCount; ++p) {
    terms.protocols[p] = has_protocol(layout, static_cast<kernels::device::Protocol>(p));
  }
  // In host memory nothing keeps lines of 128 bytes whole, whatever lies between the devices.
  if (regions.in_pairs() || regions.in_host_memory())
    terms.protocols[static_cast<int>(kernels::device::Protocol::ll128)] = false;
  return terms;
}

}  // namespace rondo::comm::device
