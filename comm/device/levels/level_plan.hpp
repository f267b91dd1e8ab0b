// SPDX-License-Identifier: Apache-2.0
// Collectives of a communicator on several nodes, as calls of smaller ones: of the ranks of a node, who reach each
// other's memory, and of a rail, which is a rank of each node, all at the same place there. Rails are as many as the
// smallest node has ranks. Which calls those are is a matter of numbers alone, so all ranks come to fitting ones.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/hierarchy/nodes.hpp"

namespace rondo::comm::device {

// Ranks in two levels, and the memory of this one that waits between them.
struct LevelShape {
  Nodes nodes;
  std::byte* scratch = nullptr;  // device memory
  std::size_t scratch_bytes = 0;

  bool even() const { return nodes.least == nodes.most; }
  bool in_order() const;  // even, and the ranks of a node follow each other, node by node
  bool on_rail() const { return nodes.index < nodes.least; }
};

enum class Level : std::uint8_t { node, rail };
struct LevelStep {
  Level level;
  Call call;  // by the level's own numbers of ranks
};

// Why such a call goes over links between all ranks as it is; empty: it goes in two levels. By the same values on
// every rank. `wanted`: the algorithm that was asked for by name.
std::string_view why_not_levels(const Call& call, const LevelShape& shape, Determinism determinism,
                                std::string_view wanted);
// This rank's steps of a call that does, in order.
std::vector<LevelStep> plan_levels(const Call& call, const LevelShape& shape);

}  // namespace rondo::comm::device
