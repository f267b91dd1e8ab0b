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

std::size_t own_count(const Work& work, std::span<const std::size_t> counts) {
  return counts.empty() ? work.count : counts[static_cast<std::size_t>(work.rank)];
}

}  // namespace

RankBlocks blocks_of(const Problem& problem, int rank) {
  RankBlocks blocks;
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t peer = 0; peer < problem.counts.size(); ++peer) {
    const auto& row = problem.counts[peer];
    const bool to_all = problem.pattern == Pattern::all_to_all;
    if (problem.pattern == Pattern::scatter || to_all) {
      blocks.send_counts.push_back(to_all ? problem.counts[me][peer] : row[0]);
    }
    if (problem.pattern != Pattern::scatter) blocks.recv_counts.push_back(to_all ? row[me] : row[0]);
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
  const bool at_root = work.rank == work.root;
  switch (problem.pattern) {
    case Pattern::all_reduce:
    case Pattern::reduce:
      return work.count;
    case Pattern::all_gather:
    case Pattern::gather:
      return own_count(work, work.recv_counts);
    case Pattern::broadcast:
      return at_root ? work.count : 0;
    case Pattern::reduce_scatter:
    case Pattern::all_to_all:
      return total(work, work.send_counts);
    case Pattern::scatter:
      return at_root ? total(work, work.send_counts) : 0;
    case Pattern::barrier:
      return 0;
  }
  return 0;
}

std::size_t output_count(const Problem& problem, const Work& work) {
  const bool at_root = work.rank == work.root;
  switch (problem.pattern) {
    case Pattern::all_reduce:
    case Pattern::broadcast:
    case Pattern::reduce_scatter:
      return work.count;
    case Pattern::reduce:
      return at_root ? work.count : 0;
    case Pattern::all_gather:
    case Pattern::all_to_all:
      return total(work, work.recv_counts);
    case Pattern::gather:
      return at_root ? total(work, work.recv_counts) : 0;
    case Pattern::scatter:
      return own_count(work, work.send_counts);
    case Pattern::barrier:
      return 0;
  }
  return 0;
}

bool is_overlaid(const Problem& problem, const Work& work) {
  const bool both = input_count(problem, work) > 0 && output_count(problem, work) > 0;
  return problem.in_place && both && problem.pattern != Pattern::all_to_all;
}

Overlay overlay_of(const Problem& problem, const Work& work) {
  switch (problem.pattern) {
    case Pattern::all_gather:
    case Pattern::gather:
      return {.input_at = work.recv_block(work.rank).offset};
    case Pattern::reduce_scatter:
    case Pattern::scatter:
      return {.output_at = work.send_block(work.rank).offset};
    case Pattern::all_reduce:
    case Pattern::reduce:
    case Pattern::broadcast:
    case Pattern::all_to_all:
    case Pattern::barrier:
      break;
  }
  return {};
}

Origin origin_of(const Problem& problem, const Work& work, std::size_t output_element) {
  switch (problem.pattern) {
    case Pattern::all_reduce:
    case Pattern::reduce:
      return {output_element};
    case Pattern::reduce_scatter:
      return {work.send_block(work.rank).offset + output_element};
    case Pattern::broadcast:
      return {output_element, work.root};
    case Pattern::scatter:
      return {work.send_block(work.rank).offset + output_element, work.root};
    case Pattern::all_gather:
    case Pattern::gather:
    case Pattern::all_to_all:
    case Pattern::barrier:
      break;
  }
  int source = 0;  // the block that the element lies in
  while (output_element >= work.recv_block(source).offset + work.recv_block(source).count) ++source;
  const std::size_t within = output_element - work.recv_block(source).offset;
  if (problem.pattern != Pattern::all_to_all) return {within, source};
  const RankBlocks theirs = blocks_of(problem, source);
  return {work_of(problem, source, theirs).send_block(work.rank).offset + within, source};
}

}  // namespace rondo::kernels
