// SPDX-License-Identifier: Apache-2.0
// A channel's share of an operation. Block b of all ranks works on part b: where the message is one piece, of the
// message; where it is made of one block per rank, of each of these. Parts begin at multiples of 16 bytes.
#pragma once
#include "kernels/algorithms/table.hpp"
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

RONDO_DEVICE Range share_of(std::uint64_t count, unsigned element, int channels, int channel) {
  if (channels == 1) return {0, count};
  const std::uint64_t unit = 16 / element;
  const Range units = part({0, (count + unit - 1) / unit}, channels, channel);
  const auto clipped = [count](std::uint64_t at) { return at < count ? at : count; };
  const std::uint64_t first = clipped(units.offset * unit);
  return {first, clipped((units.offset + units.count) * unit) - first};
}

inline constexpr unsigned kSendBlocks = patterns_that([](const PatternRow& row) { return row.sends_blocks(); });
inline constexpr unsigned kReceiveBlocks = patterns_that([](const PatternRow& row) { return row.receives_blocks(); });
RONDO_DEVICE bool sends_blocks(Pattern p) { return (kSendBlocks >> static_cast<unsigned>(p) & 1U) != 0; }
RONDO_DEVICE bool receives_blocks(Pattern p) { return (kReceiveBlocks >> static_cast<unsigned>(p) & 1U) != 0; }

// One of the two lists of blocks, by all threads; a barrier must follow.
RONDO_DEVICE void fill_blocks(const Launch& launch, const Operation& operation, int first_count, unsigned element,
                              int ranks, std::size_t* counts, std::size_t* offsets) {
  for (int rank = static_cast<int>(thread_index()); rank < ranks; rank += static_cast<int>(block_threads())) {
    std::uint64_t count = operation.count;
    std::uint64_t offset = static_cast<std::uint64_t>(rank) * count;
    if (first_count != kNoCounts) {
      count = launch.counts[first_count + rank];
      offset = 0;
      for (int before = 0; before < rank; ++before) offset += launch.counts[first_count + before];
    }
    const Range share = share_of(count, element, operation.channels, static_cast<int>(block_index()));
    counts[rank] = share.count;
    offsets[rank] = offset + share.offset;
  }
}

// Of this rank's block in a list: where its share begins, in bytes.
RONDO_DEVICE std::uint64_t own_shift(const Launch& launch, const Operation& operation, int first_count,
                                     unsigned element, int rank) {
  const std::uint64_t count = first_count == kNoCounts ? operation.count : launch.counts[first_count + rank];
  return share_of(count, element, operation.channels, static_cast<int>(block_index())).offset * element;
}

// By all threads; ends with a barrier.
RONDO_DEVICE void take_share(FifoBlock& block, const Launch& launch, const Operation& operation, Pattern pattern,
                             unsigned element) {
  const int ranks = block.world_size;
  const Range range = share_of(operation.count, element, operation.channels, static_cast<int>(block_index()));
  Share share{{.rank = block.rank, .size = ranks, .root = operation.root, .count = range.count},
              operation.input,
              operation.output};
  const bool sends = sends_blocks(pattern), receives = receives_blocks(pattern);
  if (sends) {
    fill_blocks(launch, operation, operation.send_counts, element, ranks, block.send_counts, block.send_offsets);
    share.work.send_counts = {block.send_counts, static_cast<std::size_t>(ranks)};
    share.work.send_offsets = {block.send_offsets, static_cast<std::size_t>(ranks)};
    if (!receives) share.output += own_shift(launch, operation, operation.send_counts, element, block.rank);
  }
  if (receives) {
    fill_blocks(launch, operation, operation.recv_counts, element, ranks, block.recv_counts, block.recv_offsets);
    share.work.recv_counts = {block.recv_counts, static_cast<std::size_t>(ranks)};
    share.work.recv_offsets = {block.recv_offsets, static_cast<std::size_t>(ranks)};
    if (!sends) share.input += own_shift(launch, operation, operation.recv_counts, element, block.rank);
  }
  if (!sends && !receives) {
    share.input += range.offset * element;
    share.output += range.offset * element;
  }
  if (thread_index() == 0) block.share = share;
  block_sync();
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
