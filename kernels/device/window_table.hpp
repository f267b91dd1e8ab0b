// SPDX-License-Identifier: Apache-2.0
// The algorithms over windows, as data: whose inputs a rank reads and whose outputs it writes, in place in the peers'
// memory. One kernel runs every row (window.cuh). All are canonical: sums are left folds in rank order.
#pragma once
#include "kernels/algorithms/table.hpp"

namespace rondo::kernels {

enum class Reads : unsigned char {
  own,   // this rank's input
  root,  // the root's
  fold,  // everybody's, reduced in rank order
  each   // everybody's, one after the other
};
enum class Writes : unsigned char { own, root, all };
// What of the message a rank moves: all of it, its part of size-th, or the block that belongs to it.
enum class Cut : unsigned char { nothing, whole, parts, blocks };

struct WindowAlgorithm {
  AlgorithmRow row;
  Reads reads;
  Writes writes;
  Cut cut;
};

inline constexpr WindowAlgorithm kWindowAlgorithms[] = {
    {{Pattern::all_reduce, "one_shot", kCanonical, kEqual, no_scratch}, Reads::fold, Writes::own, Cut::whole},
    {{Pattern::all_reduce, "two_shot", kCanonical, kEqual, no_scratch}, Reads::fold, Writes::all, Cut::parts},
    {{Pattern::reduce, "direct", kCanonical, kEqual, no_scratch}, Reads::fold, Writes::root, Cut::parts},
    {{Pattern::broadcast, "direct", kCanonical, kEqual, no_scratch}, Reads::root, Writes::all, Cut::parts},
    {{Pattern::all_gather, "direct", kCanonical, kVariable, no_scratch}, Reads::own, Writes::all, Cut::blocks},
    {{Pattern::reduce_scatter, "direct", kCanonical, kEqual, no_scratch}, Reads::fold, Writes::own, Cut::blocks},
    {{Pattern::all_to_all, "direct", kCanonical, kVariable, no_scratch}, Reads::each, Writes::own, Cut::blocks},
    {{Pattern::gather, "direct", kCanonical, kVariable, no_scratch}, Reads::own, Writes::root, Cut::blocks},
    {{Pattern::scatter, "direct", kCanonical, kVariable, no_scratch}, Reads::root, Writes::own, Cut::blocks},
    {{Pattern::barrier, "direct", kCanonical, kEqual, no_scratch}, Reads::own, Writes::own, Cut::nothing},
};
inline constexpr int kWindowAlgorithmCount = static_cast<int>(std::size(kWindowAlgorithms));
constexpr const AlgorithmRow& window_algorithm_row(int id) { return kWindowAlgorithms[id].row; }

constexpr int find_window_algorithm(Pattern pattern, std::string_view name) {
  for (int id = 0; id < kWindowAlgorithmCount; ++id) {
    if (kWindowAlgorithms[id].row.pattern == pattern && kWindowAlgorithms[id].row.name == name) return id;
  }
  return kNoAlgorithm;
}

// DeviceTeam::staging_bytes is this or more: for buffers that lie in no window. More makes fewer rounds.
constexpr std::size_t least_staging_bytes(int world_size, int blocks) {
  constexpr std::size_t kLine = 128;
  return 2 * kLine * static_cast<std::size_t>(world_size) * static_cast<std::size_t>(blocks);
}

}  // namespace rondo::kernels
