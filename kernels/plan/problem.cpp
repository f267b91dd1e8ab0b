// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/problem.hpp"

namespace rondo::kernels {
namespace {

std::vector<std::size_t> packed(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> offsets;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    offsets.push_back(offset);
    offset += count;
  }
  return offsets;
}

std::size_t total(const Work& work, std::span<const std::size_t> counts) {
  if (counts.empty()) return work.count * static_cast<std::size_t>(work.size);
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

// Elements of one of a rank's buffers. The counts of its blocks, and those of the other buffer's: where this one is a
// block, it is the rank's own of those.
std::size_t elements(const Work& work, Extent extent, std::span<const std::size_t> counts,
                     std::span<const std::size_t> others) {
  if (extent == Extent::none) return 0;
  if (has_block_per_rank(extent)) return total(work, counts);
  return others.empty() ? work.count : others[static_cast<std::size_t>(work.rank)];
}

}  // namespace

RankBlocks blocks_of(const Problem& problem, int rank) {
  RankBlocks blocks;
  const PatternRow& row = row_of(problem.pattern);
  const bool pairs = row.has_block_per_pair();
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t peer = 0; peer < problem.counts.size(); ++peer) {
    const auto& theirs = problem.counts[peer];
    if (row.sends_blocks()) blocks.send_counts.push_back(pairs ? problem.counts[me][peer] : theirs[0]);
    if (row.receives_blocks()) blocks.recv_counts.push_back(pairs ? theirs[me] : theirs[0]);
  }
  blocks.send_offsets = packed(blocks.send_counts);
  blocks.recv_offsets = packed(blocks.recv_counts);
  return blocks;
}

Work work_of(const Problem& problem, int rank, const RankBlocks& blocks) {
  return {.rank = rank,
          .size = problem.size,
          .root = problem.root,
          .count = problem.count,
          .send_counts = blocks.send_counts,
          .send_offsets = blocks.send_offsets,
          .recv_counts = blocks.recv_counts,
          .recv_offsets = blocks.recv_offsets};
}

std::size_t input_count(const Problem& problem, const Work& work) {
  const PatternRow& row = row_of(problem.pattern);
  if (row.send_at_root && work.rank != work.root) return 0;
  return elements(work, row.send, work.send_counts, work.recv_counts);
}

std::size_t output_count(const Problem& problem, const Work& work) {
  const PatternRow& row = row_of(problem.pattern);
  if (row.recv_at_root && work.rank != work.root) return 0;
  return elements(work, row.recv, work.recv_counts, work.send_counts);
}

bool is_overlaid(const Problem& problem, const Work& work) {
  const bool both = input_count(problem, work) > 0 && output_count(problem, work) > 0;
  return problem.in_place && both && !row_of(problem.pattern).has_block_per_pair();
}

// A rank's block of the one is the other.
Overlay overlay_of(const Problem& problem, const Work& work) {
  const PatternRow& row = row_of(problem.pattern);
  if (row.sends_blocks()) return {.output_at = work.send_block(work.rank).offset};
  if (row.receives_blocks()) return {.input_at = work.recv_block(work.rank).offset};
  return {};
}

Origin origin_of(const Problem& problem, const Work& work, std::size_t output_element) {
  const PatternRow& row = row_of(problem.pattern);
  const std::size_t first = row.sends_blocks() ? work.send_block(work.rank).offset : 0;
  if (row.reduces) return {first + output_element};
  if (row.send_at_root) return {first + output_element, work.root};
  int source = 0;  // the block that the element lies in
  while (output_element >= work.recv_block(source).offset + work.recv_block(source).count) ++source;
  const std::size_t within = output_element - work.recv_block(source).offset;
  if (!row.has_block_per_pair()) return {within, source};
  const RankBlocks theirs = blocks_of(problem, source);
  return {work_of(problem, source, theirs).send_block(work.rank).offset + within, source};
}

}  // namespace rondo::kernels
