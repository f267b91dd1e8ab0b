// SPDX-License-Identifier: Apache-2.0
// Rings: rank r sends to r + 1 and receives from r - 1. The bandwidth-optimal family (P. Patarasuk, X. Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009); broadcast and reduce are chains.
// A chunk is a rank's part of a round and at most chunk_capacity elements. Invariant: every rank sends one chunk before
// it receives, so all links of the ring hold a chunk at once; it turns because a link has one slot more than a chunk.
#pragma once
#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

// 2(n-1) steps of count / n. Chunk c starts at rank c + 1, is complete at rank c, and goes round once more.
template <Primitives P>
constexpr void ring_all_reduce(P& p, const Work& work) {
  const int next = ahead(work, work.rank, 1);
  const int previous = ahead(work, work.rank, -1);
  for (const Range round : Rounds(work.count, p.chunk_capacity() * static_cast<std::size_t>(work.size))) {
    const auto chunk_behind = [&](int steps) { return part(round, work.size, ahead(work, work.rank, -steps)); };

    Range chunk = chunk_behind(1);
    send(p, next, input(chunk.offset), chunk.count);
    for (int step = 2; step < work.size; ++step) {
      chunk = chunk_behind(step);
      recv_reduce_send(p, previous, next, input(chunk.offset), chunk.count);
    }
    chunk = chunk_behind(0);
    recv_reduce_copy_send(p, previous, next, input(chunk.offset), output(chunk.offset), chunk.count, true);
    for (int step = 1; step < work.size - 1; ++step) {
      chunk = chunk_behind(step);
      recv_copy_send(p, previous, next, output(chunk.offset), chunk.count);
    }
    chunk = chunk_behind(work.size - 1);
    recv_copy(p, previous, output(chunk.offset), chunk.count);
  }
}

// n-1 steps of one block: block b starts at rank b + 1 and is complete at rank b.
template <Primitives P>
constexpr void ring_reduce_scatter(P& p, const Work& work) {
  const int next = ahead(work, work.rank, 1);
  const int previous = ahead(work, work.rank, -1);
  for (const Range round : Rounds(work.count, p.chunk_capacity())) {
    const auto block_behind = [&](int steps) {
      return input(work.send_block(ahead(work, work.rank, -steps)).offset + round.offset);
    };
    send(p, next, block_behind(1), round.count);
    for (int step = 2; step < work.size; ++step) {
      recv_reduce_send(p, previous, next, block_behind(step), round.count);
    }
    recv_reduce_copy(p, previous, block_behind(0), output(round.offset), round.count, true);
  }
}

// n-1 steps of one block: everybody's own block goes round. Blocks may differ in length.
template <Primitives P>
constexpr void ring_all_gather(P& p, const Work& work) {
  const int next = ahead(work, work.rank, 1);
  const int previous = ahead(work, work.rank, -1);
  for (const Range round : Rounds(longest_recv_block(work), p.chunk_capacity())) {
    const auto block_behind = [&](int steps) { return clip(work.recv_block(ahead(work, work.rank, -steps)), round); };
    Range block = block_behind(0);
    copy_send(p, next, input(round.offset), output(block.offset), block.count);
    for (int step = 1; step < work.size - 1; ++step) {
      block = block_behind(step);
      recv_copy_send(p, previous, next, output(block.offset), block.count);
    }
    block = block_behind(work.size - 1);
    recv_copy(p, previous, output(block.offset), block.count);
  }
}

// A chain from the root to the rank before it; slices follow each other down the chain.
template <Primitives P>
constexpr void ring_broadcast(P& p, const Work& work) {
  const int next = ahead(work, work.rank, 1);
  const int previous = ahead(work, work.rank, -1);
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (work.rank == work.root) {
      copy_send(p, next, input(chunk.offset), output(chunk.offset), chunk.count);
    } else if (next != work.root) {
      recv_copy_send(p, previous, next, output(chunk.offset), chunk.count);
    } else {
      recv_copy(p, previous, output(chunk.offset), chunk.count);
    }
  }
}

// A chain from the rank after the root round to the root.
template <Primitives P>
constexpr void ring_reduce(P& p, const Work& work) {
  const int next = ahead(work, work.rank, 1);
  const int previous = ahead(work, work.rank, -1);
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (work.rank == work.root) {
      recv_reduce_copy(p, previous, input(chunk.offset), output(chunk.offset), chunk.count, true);
    } else if (previous != work.root) {
      recv_reduce_send(p, previous, next, input(chunk.offset), chunk.count);
    } else {
      send(p, next, input(chunk.offset), chunk.count);
    }
  }
}

}  // namespace rondo::kernels
