// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/graph.hpp"

#include <algorithm>

namespace rondo::soft {

void Capture::add(Stream& stream, Work work) {
  Branch& branch = branches.at(&stream);
  graph.nodes.push_back({branch.index, &stream.device(), std::move(branch.heads), std::move(work)});
  branch.heads = {static_cast<int>(graph.nodes.size()) - 1};
}

void Capture::join(Stream& stream, const std::vector<int>& after) {
  const auto [at, is_new] = branches.try_emplace(&stream, Branch{static_cast<int>(graph.branches.size()), {}});
  if (is_new) graph.branches.push_back(&stream.device());
  std::vector<int>& heads = at->second.heads;
  for (const int node : after) {
    if (std::find(heads.begin(), heads.end(), node) == heads.end()) heads.push_back(node);
  }
}

bool Capture::is_joined() const {
  std::vector<bool> reached(graph.nodes.size(), false);
  for (const int head : branches.at(origin).heads) reached[static_cast<std::size_t>(head)] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;) {  // what comes before a node has a smaller number
    if (!reached[node]) return false;
    for (const int before : graph.nodes[node].after) reached[static_cast<std::size_t>(before)] = true;
  }
  return true;
}

}  // namespace rondo::soft
