// SPDX-License-Identifier: Apache-2.0
// What every block knows of a window operation before it meets anybody: the row, its own share, and how that is cut
// into rounds where a buffer lies in no window. All ranks come to the same rounds.
#pragma once
#include <utility>

#include "kernels/device/window_meet.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

// Part `index` of `parts`; all but the last end are multiples of 16 bytes away from the start.
RONDO_DEVICE Range aligned_part(Range whole, unsigned element, int parts, int index) {
  if (parts == 1) return whole;
  const std::uint64_t unit = kVector / element;
  const Range units = part({0, (whole.count + unit - 1) / unit}, parts, index);
  const std::uint64_t first = units.offset * unit, end = (units.offset + units.count) * unit;
  const std::uint64_t last = end < whole.count ? end : whole.count;
  return {whole.offset + (first < last ? first : last), first < last ? last - first : 0};
}

// Device code reads no table of the host's.
template <int... kIds>
RONDO_DEVICE void plan_row(WindowPlan& plan, int id, std::integer_sequence<int, kIds...>) {
  const auto match = [&]<int kId>(std::integral_constant<int, kId>) {
    constexpr auto kReads = kWindowAlgorithms[kId].reads;
    constexpr auto kWrites = kWindowAlgorithms[kId].writes;
    constexpr auto kCut = kWindowAlgorithms[kId].cut;
    if (id != kId) return;
    plan.reads = kReads;
    plan.writes = kWrites;
    plan.cut = kCut;
  };
  (match(std::integral_constant<int, kIds>{}), ...);
}

// By one thread.
RONDO_DEVICE void plan_operation(WindowBlock& block, const DeviceTeam& team, const Operation& operation) {
  block.operation = operation;
  WindowPlan& plan = block.plan;
  plan_row(plan, operation.algorithm, std::make_integer_sequence<int, kWindowAlgorithmCount>{});
  plan.rank = team.rank;
  plan.ranks = team.world_size;
  plan.root = operation.root;
  const auto dtype = static_cast<DataType>(operation.dtype);
  const auto op = static_cast<ReduceOp::Kind>(operation.op);
  plan.element = element_bytes(dtype);
  plan.half_bytes = team.staging_bytes / static_cast<unsigned>(team.layout.blocks) / (2 * kLine) * kLine;
  const auto slots = plan.cut == Cut::blocks ? static_cast<unsigned>(plan.ranks) : 1u;
  plan.step = plan.half_bytes / slots / kLine * kLine / plan.element;
  plan.arithmetic = {dtype, op, op == ReduceOp::premultiplied_sum ? block.factor : nullptr,
                     op == ReduceOp::average ? static_cast<double>(plan.ranks) : 1};
}

// By all threads; a barrier must follow. The buffers on the side where every rank has its block.
RONDO_DEVICE void plan_blocks(BlockShare* shares, const Launch& launch, const Operation& operation, int first_count) {
  const unsigned element = element_bytes(static_cast<DataType>(operation.dtype));
  RONDO_NO_UNROLL
  for (int rank = static_cast<int>(thread_index()); rank < launch.team->world_size;
       rank += static_cast<int>(block_threads())) {
    std::uint64_t count = operation.count, start = static_cast<unsigned>(rank) * operation.count;
    if (first_count != kNoCounts) {
      count = launch.counts[first_count + rank];
      start = 0;
      RONDO_NO_UNROLL
      for (int before = 0; before < rank; ++before) start += launch.counts[first_count + before];
    }
    shares[rank] = {start, aligned_part({0, count}, element, operation.channels, static_cast<int>(block_index()))};
  }
}

// Of rows that cut by blocks: which buffers are made of them. The other is one block.
RONDO_DEVICE bool sends_blocks(const WindowPlan& plan) { return plan.reads != Reads::own; }
RONDO_DEVICE bool receives_blocks(const WindowPlan& plan) {
  return plan.reads == Reads::own || plan.reads == Reads::each;
}

RONDO_DEVICE std::uint64_t rounds_of(const WindowBlock& block, Range whole) {
  const WindowPlan& plan = block.plan;
  std::uint64_t longest = plan.cut == Cut::blocks ? 0 : whole.count;
  RONDO_NO_UNROLL
  for (int rank = 0; plan.cut == Cut::blocks && rank < plan.ranks; ++rank) {
    const std::uint64_t sent = sends_blocks(plan) ? block.sends[rank].share.count : 0;
    const std::uint64_t received = receives_blocks(plan) ? block.receives[rank].share.count : 0;
    longest = sent > longest ? sent : longest;
    longest = received > longest ? received : longest;
  }
  return plan.step == 0 ? 1 : (longest + plan.step - 1) / plan.step;
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
