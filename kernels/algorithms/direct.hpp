// SPDX-License-Identifier: Apache-2.0
// Direct algorithms: every value goes straight to the rank that needs it. Those that reduce do so by `fold`, in rank
// order with one rounding: their bits depend on the values and the ranks alone (Determinism::reproducible).
// A chunk is sent to everybody before anything is received: that cannot wait in a circle, because a link has room for a
// chunk and the receiver, before it sends its next one, empties it.
#pragma once
#include <array>

#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

// One shot: everybody gets everybody's message and folds it. n-1 messages out and in, one step.
template <Primitives P>
constexpr void one_shot_all_reduce(P& p, const Work& work) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    each_step(p, work.size - 1, [&](int step) {
      return std::array{Move{.count = chunk.count, .to = ahead(work, work.rank, step), .local = input(chunk.offset)}};
    });
    p.fold({.count = chunk.count, .local = input(chunk.offset), .store = output(chunk.offset)});
  }
}

// Two shots: rank r folds part r of everybody's round, then sends it to everybody. 2(n-1)/n messages out and in.
template <Primitives P>
constexpr void two_shot_all_reduce(P& p, const Work& work) {
  for (const Range round : Rounds(work.count, p.chunk_capacity() * static_cast<std::size_t>(work.size))) {
    each_step(p, work.size - 1, [&](int step) {
      const int to = ahead(work, work.rank, step);
      const Range theirs = part(round, work.size, to);
      return std::array{Move{.count = theirs.count, .to = to, .local = input(theirs.offset)}};
    });
    const Range mine = part(round, work.size, work.rank);
    p.fold({.count = mine.count, .local = input(mine.offset), .store = output(mine.offset)});
    each_step(p, work.size - 1, [&](int step) {
      const int from = ahead(work, work.rank, -step);
      const Range theirs = part(round, work.size, from);
      return std::array{Move{.count = mine.count, .to = ahead(work, work.rank, step), .local = output(mine.offset)},
                        Move{.count = theirs.count, .from = from, .store = output(theirs.offset)}};
    });
  }
}

template <Primitives P>
constexpr void direct_reduce(P& p, const Work& work) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (work.rank == work.root) {
      p.fold({.count = chunk.count, .local = input(chunk.offset), .store = output(chunk.offset)});
    } else {
      send(p, work.root, input(chunk.offset), chunk.count);
    }
  }
}

template <Primitives P>
constexpr void direct_reduce_scatter(P& p, const Work& work) {
  for (const Range round : Rounds(work.count, p.chunk_capacity())) {
    const auto block_of = [&](int rank) { return input(work.send_block(rank).offset + round.offset); };
    each_step(p, work.size - 1, [&](int step) {
      const int to = ahead(work, work.rank, step);
      return std::array{Move{.count = round.count, .to = to, .local = block_of(to)}};
    });
    p.fold({.count = round.count, .local = block_of(work.rank), .store = output(round.offset)});
  }
}

// From the root's output to everybody's.
template <Primitives P>
constexpr void direct_flow_down(P& p, const Work& work) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (work.rank != work.root) {
      recv_copy(p, work.root, output(chunk.offset), chunk.count);
      continue;
    }
    each_step(p, work.size - 1, [&](int step) {
      return std::array{Move{.count = chunk.count, .to = ahead(work, work.root, step), .local = output(chunk.offset)}};
    });
  }
}

template <Primitives P>
constexpr void direct_broadcast(P& p, const Work& work) {
  if (work.rank == work.root) copy(p, input(0), output(0), work.count);
  direct_flow_down(p, work);
}

// Everybody sends its block to the root, a chunk of each in turn. Blocks may differ in length.
template <Primitives P>
constexpr void direct_gather(P& p, const Work& work) {
  const Range mine = work.recv_block(work.rank);
  if (work.rank == work.root) copy(p, input(0), output(mine.offset), mine.count);
  for (const Range round : Rounds(longest_recv_block(work), p.chunk_capacity())) {
    if (work.rank != work.root) {
      send(p, work.root, input(round.offset), clip(mine, round).count);
      continue;
    }
    each_step(p, work.size - 1, [&](int step) {
      const int from = ahead(work, work.root, step);
      const Range theirs = clip(work.recv_block(from), round);
      return std::array{Move{.count = theirs.count, .from = from, .store = output(theirs.offset)}};
    });
  }
}

// The root sends everybody its block, a chunk to each in turn. Blocks may differ in length.
template <Primitives P>
constexpr void direct_scatter_from(P& p, const Work& work, Buffer blocks) {
  const Range mine = work.send_block(work.rank);
  if (work.rank == work.root) copy(p, {blocks, mine.offset}, output(0), mine.count);
  for (const Range round : Rounds(longest_send_block(work), p.chunk_capacity())) {
    if (work.rank != work.root) {
      recv_copy(p, work.root, output(round.offset), clip(mine, round).count);
      continue;
    }
    each_step(p, work.size - 1, [&](int step) {
      const int to = ahead(work, work.root, step);
      const Range theirs = clip(work.send_block(to), round);
      return std::array{Move{.count = theirs.count, .to = to, .local = {blocks, theirs.offset}}};
    });
  }
}

template <Primitives P>
constexpr void direct_scatter(P& p, const Work& work) {
  direct_scatter_from(p, work, Buffer::input);
}

}  // namespace rondo::kernels
