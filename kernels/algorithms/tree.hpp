// SPDX-License-Identifier: Apache-2.0
// Binomial trees: log2(n) steps, for messages where latency counts (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization
// of collective communication operations in MPICH", IJHPCA 19(1), 2005). Positions are ranks counted from the root; the
// parent of a position is the position without its lowest bit; its children are the position with one lower bit set.
// Links run one way only within a phase, from or to the root, so no FIFO size can make them wait in a circle.
#pragma once
#include <array>

#include "kernels/algorithms/direct.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

struct BinomialTree {
  int size, root, position;
  constexpr BinomialTree(const Work& work, int tree_root)
      : size(work.size), root(tree_root), position((work.rank - tree_root + work.size) % work.size) {}
  constexpr int rank_at(int place) const { return (place + root) % size; }
  constexpr int parent() const { return rank_at(position & (position - 1)); }
  // Children are the positions position + bit, for bit a power of two from 1 to (not including) this and inside size.
  constexpr int end_bit() const { return position == 0 ? size : position & -position; }
  constexpr bool has_child(int bit) const { return bit < end_bit() && position + bit < size; }
  constexpr int child(int bit) const { return rank_at(position + bit); }
  constexpr int children() const {
    int found = 0;
    while (has_child(1 << found)) ++found;
    return found;
  }
};

// The message flows down from the root's output. The tallest subtree is served first.
template <Primitives P>
constexpr void tree_flow_down(P& p, const Work& work, const BinomialTree& tree) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (tree.position != 0) recv_copy(p, tree.parent(), output(chunk.offset), chunk.count);
    const int children = tree.children();
    each_step(p, children, [&](int step) {
      return std::array{
          Move{.count = chunk.count, .to = tree.child(1 << (children - step)), .local = output(chunk.offset)}};
    });
  }
}

// The message flows up to the root, reduced on the way: complete in the root's `result`. Other ranks with two or more
// children keep the partial result of one chunk in scratch.
template <Primitives P>
constexpr void tree_flow_up(P& p, const Work& work, const BinomialTree& tree, Buffer result = Buffer::output) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    const bool at_root = tree.position == 0;
    const Location partial = at_root ? Location{result, chunk.offset} : scratch(0);
    Location mine = input(chunk.offset);
    for (int bit = 1; tree.has_child(bit); bit *= 2) {
      const bool last = !tree.has_child(2 * bit);
      if (last && !at_root) {
        recv_reduce_send(p, tree.child(bit), tree.parent(), mine, chunk.count);
      } else {
        recv_reduce_copy(p, tree.child(bit), mine, partial, chunk.count, last);
      }
      mine = partial;
    }
    if (!tree.has_child(1)) send(p, tree.parent(), mine, chunk.count);
  }
}

template <Primitives P>
constexpr void tree_broadcast(P& p, const Work& work) {
  if (work.rank == work.root) copy(p, input(0), output(0), work.count);
  tree_flow_down(p, work, BinomialTree(work, work.root));
}

template <Primitives P>
constexpr void tree_reduce(P& p, const Work& work) {
  tree_flow_up(p, work, BinomialTree(work, work.root));
}

// Up to rank 0 and down again.
template <Primitives P>
constexpr void tree_all_reduce(P& p, const Work& work) {
  const BinomialTree tree(work, 0);
  tree_flow_up(p, work, tree);
  tree_flow_down(p, work, tree);
}

constexpr std::size_t tree_scratch_count(const Work& work, std::size_t chunk_capacity) {
  return work.count < chunk_capacity ? work.count : chunk_capacity;
}

// Where few messages count for more than few bytes: 2(n-1) of them, and not n(n-1).

// Every block straight to rank 0; all of them, which lie next to each other, down the tree.
template <Primitives P>
constexpr void tree_all_gather(P& p, const Work& work) {
  Work all = work;
  all.root = 0;
  direct_gather(p, all);
  all.count *= static_cast<std::size_t>(work.size);
  tree_flow_down(p, all, BinomialTree(work, 0));
}

// Up the tree to rank 0's scratch; down it goes what lies in a rank's subtree, whose blocks are neighbours.
template <Primitives P>
constexpr void tree_reduce_scatter(P& p, const Work& work) {
  const BinomialTree tree(work, 0);
  Work all = work;
  all.count = work.count * static_cast<std::size_t>(work.size);
  tree_flow_up(p, all, tree, Buffer::scratch);
  const auto blocks = [&](int position, int width) {
    const int within = position + width < work.size ? width : work.size - position;
    return Range{static_cast<std::size_t>(position) * work.count, static_cast<std::size_t>(within) * work.count};
  };
  const Range mine = blocks(tree.position, tree.end_bit());
  for (const Range chunk : Rounds(tree.position == 0 ? 0 : mine.count, p.chunk_capacity())) {
    recv_copy(p, tree.parent(), scratch(mine.offset + chunk.offset), chunk.count);
  }
  int bit = 1;
  while (tree.has_child(bit)) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    const Range theirs = blocks(tree.position + bit, bit);
    for (const Range chunk : Rounds(theirs.count, p.chunk_capacity())) {
      send(p, tree.child(bit), scratch(theirs.offset + chunk.offset), chunk.count);
    }
  }
  copy(p, scratch(mine.offset), output(0), work.count);
}

constexpr std::size_t tree_reduce_scatter_scratch_count(const Work& work, std::size_t) {
  return work.count * static_cast<std::size_t>(work.size);
}

// That all have come flows up, that they have flows down.
template <Primitives P>
constexpr void tree_barrier(P& p, const Work& work) {
  const BinomialTree tree(work, 0);
  const int children = tree.children();
  each_step(p, children, [&](int step) { return std::array{Move{.count = 1, .from = tree.child(1 << (step - 1))}}; });
  if (tree.position != 0) {
    send(p, tree.parent(), scratch(0), 1);
    const Move told{.count = 1, .from = tree.parent()};
    p.run(std::span(&told, 1));
  }
  each_step(p, children, [&](int step) {
    return std::array{Move{.count = 1, .to = tree.child(1 << (children - step)), .local = scratch(0)}};
  });
}

}  // namespace rondo::kernels
