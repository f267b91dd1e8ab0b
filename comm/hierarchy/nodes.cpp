// SPDX-License-Identifier: Apache-2.0
#include "comm/hierarchy/nodes.hpp"

#include <algorithm>
#include <map>

namespace rondo::comm {

Nodes nodes_of(const Team& team) {
  Nodes nodes;
  std::map<int, std::size_t> shared;  // node as the placement numbers it: as we do
  for (int rank = 0; rank < team.size(); ++rank) {
    const Placement& placement = team.placement(rank);
    std::size_t node = nodes.ranks.size();
    if (placement.shares_memory) node = shared.emplace(placement.node, node).first->second;
    if (node == nodes.ranks.size()) nodes.ranks.emplace_back();
    nodes.node_of.push_back(static_cast<int>(node));
    nodes.index_of.push_back(static_cast<int>(nodes.ranks[node].size()));
    nodes.ranks[node].push_back(rank);
  }
  nodes.mine = nodes.node_of[static_cast<std::size_t>(team.rank())];
  nodes.index = nodes.index_of[static_cast<std::size_t>(team.rank())];
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [least, most] = std::minmax_element(nodes.ranks.begin(), nodes.ranks.end(), shorter);
  nodes.least = static_cast<int>(least->size());
  nodes.most = static_cast<int>(most->size());
  return nodes;
}

}  // namespace rondo::comm
