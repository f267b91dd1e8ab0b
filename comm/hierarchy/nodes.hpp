// SPDX-License-Identifier: Apache-2.0
// The ranks of a team by the memory they share.
#pragma once
#include <vector>

#include "comm/team/team.hpp"

namespace rondo::comm {

// The same on every rank, but for mine and index. A rank that shares memory with nobody is a node of its own here.
struct Nodes {
  std::vector<std::vector<int>> ranks;  // of each node, in order; index: as in its segment
  int mine = 0;                         // this rank's node
  int index = 0;                        // this rank among the ranks of its node
  int least = 0, most = 0;              // ranks of the smallest and of the largest node
  std::vector<int> node_of, index_of;   // by rank

  int count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& of(int node) const { return ranks[static_cast<std::size_t>(node)]; }
  const std::vector<int>& own() const { return of(mine); }
  // Who stands in a node for its rank at that index, which it may not have.
  int at(int node, int wanted) const { return of(node)[static_cast<std::size_t>(wanted) % of(node).size()]; }
  // There are two levels: several nodes, and several ranks on one of them.
  bool nested() const { return count() > 1 && most > 1; }
};
Nodes nodes_of(const Team& team);

}  // namespace rondo::comm
