// SPDX-License-Identifier: Apache-2.0
#include "comm/call/algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "comm/call/blocks.hpp"
#include "kernels/algorithms/table.hpp"
#include "kernels/algorithms/tuner.hpp"

namespace rondo::comm {
namespace {

std::vector<std::size_t> offsets_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets;
  lay_out(counts, offsets);
  return offsets;
}

// Peers to which, or from which, nothing is moved though something might be. Where the other end may think otherwise
// and neither would ever wait for the other, they exchange an empty step, whose header tells.
struct Silent {
  std::vector<int> to, from;
};

Silent find_silent(const Call& call, const Team& team) {
  Silent silent;
  const CollectiveRow& row = row_of(call.collective);
  const bool pairs = row.has_own_counts();
  const bool scatters = !pairs && row.send == Extent::counts;
  if ((!pairs && !scatters) || moves_nothing(call)) return silent;
  const auto empty = [](std::span<const std::size_t> counts, int rank) {
    return counts[static_cast<std::size_t>(rank)] == 0;
  };
  for (int peer = 0; peer < team.size(); ++peer) {
    if (peer == team.rank()) continue;
    if ((pairs || team.rank() == call.root) && empty(call.send_counts, peer)) silent.to.push_back(peer);
    if (pairs && empty(call.recv_counts, peer)) silent.from.push_back(peer);
  }
  if (scatters && team.rank() != call.root && empty(call.send_counts, team.rank())) silent.from.push_back(call.root);
  return silent;
}

}  // namespace

bool prefers_board(std::string_view wanted) { return wanted.empty() || wanted == kBoard.name; }

void check_algorithm_name(std::string_view name) {
  if (name == kBoard.name || name == kTwoLevel.name) return;
  std::string known = fmt::format("{}, {}", kBoard.name, kTwoLevel.name);
  for (int id = 0; id < kernels::kAlgorithmCount; ++id) {
    const std::string_view other = kernels::algorithm_row(id).name;
    if (other == name) return;
    if (known.find(other) == std::string::npos) known += fmt::format(", {}", other);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("RONDO_ALGORITHM={} is not an algorithm: {}, or unset", name, known));
}

namespace {

bool fits(int id, const CallShape& shape, bool canonical) {
  if (id == kernels::kNoAlgorithm) return false;
  const auto& row = kernels::algorithm_row(id);
  return (!canonical || row.canonical_order) && (!shape.variable_counts || row.variable_counts);
}

}  // namespace

Chosen choose_row(const CallShape& shape, int world_size, bool canonical, const Tuning& tuning) {
  int id = kernels::choose_algorithm(shape.pattern, shape.bytes, world_size, canonical, tuning.links);
  if (fits(id, shape, canonical)) return {id, kernels::algorithm_row(id).name, "a links row of the tuning"};
  id = kernels::choose_algorithm(shape.pattern, shape.bytes, world_size, canonical);
  return {id, kernels::algorithm_row(id).name, "a row of the built-in table"};
}

Chosen choose_algorithm(const Call& call, const Team& team, Determinism determinism, const Config& config) {
  const CallShape shape = shape_of(call, team.size());
  const bool canonical = determinism == Determinism::reproducible || shape.one_fold;
  if (!config.algorithm.empty()) {
    const int id = kernels::find_algorithm(shape.pattern, config.algorithm);
    if (fits(id, shape, canonical)) return {id, kernels::algorithm_row(id).name, "it was asked for"};
  }
  return choose_row(shape, team.size(), canonical, config.tuning);
}

void run_row(const Chosen& chosen, HostPrimitives& primitives, const kernels::Work& work) {
  const auto& row = kernels::algorithm_row(chosen.row);
  primitives.reserve_scratch(row.scratch_count(work, primitives.chunk_capacity()));
  kernels::run_algorithm(chosen.row, primitives, work);
}

// Of a _v form.
[[gnu::noinline]] void run_counted(const Chosen& chosen, const Call& call, HostPrimitives& primitives, const Team& team,
                                   kernels::Work work) {
  const auto send_offsets = offsets_of(call.send_counts);
  const auto recv_offsets = offsets_of(call.recv_counts);
  work.send_counts = call.send_counts;
  work.send_offsets = send_offsets;
  work.recv_counts = call.recv_counts;
  work.recv_offsets = recv_offsets;
  const Silent silent = find_silent(call, team);
  primitives.send_empty(silent.to);
  run_row(chosen, primitives, work);
  primitives.receive_empty(silent.from);
}

void run_algorithm(const Chosen& chosen, const Call& call, const Signature& signature, HostPrimitives& primitives,
                   const Team& team, std::chrono::milliseconds timeout) {
  const CollectiveRow& row = row_of(call.collective);
  const bool pairs = row.has_own_counts();
  primitives.begin({.signature = signature,
                    .input = static_cast<const std::byte*>(call.send),
                    .output = static_cast<std::byte*>(call.recv),
                    .dtype = call.dtype,
                    .op = call.op,
                    .reduces = row.reduces,
                    .may_hold = true,
                    .send_counts = pairs ? call.send_counts : std::span<const std::size_t>{},
                    .recv_counts = pairs ? call.recv_counts : std::span<const std::size_t>{}},
                   timeout);
  const kernels::Work work{
      .rank = team.rank(), .size = team.size(), .root = std::max(call.root, 0), .count = call.count};
  if (call.send_counts.empty() && call.recv_counts.empty()) {
    run_row(chosen, primitives, work);
  } else {
    run_counted(chosen, call, primitives, team, work);
  }
  primitives.finish();
}

}  // namespace rondo::comm
