// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/plan.hpp"

#include "kernels/plan/text.hpp"

namespace rondo::kernels {
namespace {

std::string name_of(Location place, std::size_t count) {
  static constexpr const char* kNames[] = {"nothing", "input", "output", "scratch"};
  return text(kNames[static_cast<int>(place.buffer)], "[", place.offset, ", ", place.offset + count, ")");
}

void add(Traffic& traffic, std::size_t count, std::size_t slice) {
  traffic.elements += count;
  traffic.fifo_steps += (count + slice - 1) / slice;
}

}  // namespace

Plan record(int algorithm, const Problem& problem, const LinkLayout& layout, Steps steps) {
  Plan plan{.algorithm = algorithm, .problem = problem, .layout = layout};
  for (int rank = 0; rank < problem.size; ++rank) {
    const RankBlocks blocks = blocks_of(problem, rank);
    const Work work = work_of(problem, rank, blocks);
    const std::size_t scratch = algorithm_row(algorithm).scratch_count(work, layout.chunk_capacity());
    plan.scratch_count = scratch > plan.scratch_count ? scratch : plan.scratch_count;
    if (steps == Steps::together) {
      RecordingSteps p(layout, plan.ranks.emplace_back());
      run_algorithm(algorithm, p, work);
    } else {
      RecordingPrimitives p(layout, plan.ranks.emplace_back());
      run_algorithm(algorithm, p, work);
    }
  }
  return plan;
}

std::string describe(const Move& move) {
  const bool receives = move.from != kNobody;
  const bool reads = move.local.buffer != Buffer::none;
  const bool stores = move.store.buffer != Buffer::none;
  std::string line = receives ? text("receive from ", move.from) : "";
  if (reads) line += text(receives ? ", reduce with " : stores ? "copy " : "", name_of(move.local, move.count));
  if (move.complete) line += ", complete";
  if (stores) line += text(" -> ", name_of(move.store, move.count));
  if (move.to != kNobody) line += text(", send to ", move.to);
  return text(line, " (", move.count, ")");
}

std::string describe(const PlanStep& step) {
  if (step.is_fold) {
    return text("fold all ranks, own ", name_of(step.fold.local, step.fold.count), " -> ",
                name_of(step.fold.store, step.fold.count), " (", step.fold.count, ")");
  }
  std::string line;
  for (const Move& move : step.moves) line += text(line.empty() ? "" : " | ", describe(move));
  return line;
}

PlanCost cost_of(const Plan& plan) {
  const std::size_t n = plan.ranks.size();
  PlanCost cost{.links = std::vector(n, std::vector<Traffic>(n)),
                .sent = std::vector<Traffic>(n),
                .received = std::vector<Traffic>(n),
                .steps = {}};
  for (std::size_t rank = 0; rank < n; ++rank) {
    cost.steps.push_back(plan.ranks[rank].size());
    for (const PlanStep& step : plan.ranks[rank]) {
      for (const Move& move : step.moves) {
        if (move.to == kNobody) continue;
        const auto to = static_cast<std::size_t>(move.to);
        add(cost.links[rank][to], move.count, plan.layout.slice);
        add(cost.sent[rank], move.count, plan.layout.slice);
        add(cost.received[to], move.count, plan.layout.slice);
      }
    }
  }
  return cost;
}

}  // namespace rondo::kernels
