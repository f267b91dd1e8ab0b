// SPDX-License-Identifier: Apache-2.0
// Everything by way of rank 0: 2(n-1) messages in two steps, whatever the number of ranks. For messages so short that
// who must be woken for one counts for more than its bytes: in a tree as many messages wake ranks that then wait again.
// Links run one way only within a phase, to rank 0 or from it, so no FIFO size can make them wait in a circle.
#pragma once
#include "kernels/algorithms/direct.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

constexpr Work rooted_at_0(const Work& work, std::size_t count) {
  Work rooted = work;
  rooted.root = 0;
  rooted.count = count;
  return rooted;
}

// A chunk is on its way down before the next one comes up.
template <Primitives P>
constexpr void star_all_reduce(P& p, const Work& work) {
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    if (work.rank == 0) {
      p.fold({.count = chunk.count, .local = input(chunk.offset), .store = output(chunk.offset)});
      for (int to = 1; to < work.size; ++to) send(p, to, output(chunk.offset), chunk.count);
    } else {
      send(p, 0, input(chunk.offset), chunk.count);
      recv_copy(p, 0, output(chunk.offset), chunk.count);
    }
  }
}

// Every block to rank 0, and all of them, which lie next to each other, to everybody.
template <Primitives P>
constexpr void star_all_gather(P& p, const Work& work) {
  direct_gather(p, rooted_at_0(work, work.count));
  direct_flow_down(p, rooted_at_0(work, work.count * static_cast<std::size_t>(work.size)));
}

// Rank 0 folds the whole message into its scratch, and sends everybody its block of it.
template <Primitives P>
constexpr void star_reduce_scatter(P& p, const Work& work) {
  for (const Range chunk : Rounds(work.count * static_cast<std::size_t>(work.size), p.chunk_capacity())) {
    if (work.rank == 0) {
      p.fold({.count = chunk.count, .local = input(chunk.offset), .store = scratch(chunk.offset)});
    } else {
      send(p, 0, input(chunk.offset), chunk.count);
    }
  }
  direct_scatter_from(p, rooted_at_0(work, work.count), Buffer::scratch);
}

constexpr std::size_t star_reduce_scatter_scratch_count(const Work& work, std::size_t) {
  return work.rank == 0 ? work.count * static_cast<std::size_t>(work.size) : 0;
}

// Everybody's whole input to rank 0, which sends everybody its blocks in one message. Needs two buffers.
template <Primitives P>
constexpr void star_all_to_all(P& p, const Work& work) {
  const auto size = static_cast<std::size_t>(work.size);
  const Rounds rounds(work.count * size, p.chunk_capacity());
  if (work.rank != 0) {
    for (const Range chunk : rounds) send(p, 0, input(chunk.offset), chunk.count);
    for (const Range chunk : rounds) recv_copy(p, 0, output(chunk.offset), chunk.count);
    return;
  }
  const auto brought = [&](std::size_t from, std::size_t at) { return scratch(from * size * work.count + at); };
  const auto to_take = [&](std::size_t to, std::size_t at) { return scratch((size + to) * size * work.count + at); };
  for (const Range chunk : rounds) {
    for (std::size_t from = 1; from < size; ++from)
      recv_copy(p, static_cast<int>(from), brought(from, chunk.offset), chunk.count);
  }
  for (std::size_t to = 0; to < size; ++to) {
    for (std::size_t from = 0; from < size; ++from) {
      const Location block = from == 0 ? input(to * work.count) : brought(from, to * work.count);
      copy(p, block, to == 0 ? output(from * work.count) : to_take(to, from * work.count), work.count);
    }
    if (to == 0) continue;
    for (const Range chunk : rounds) send(p, static_cast<int>(to), to_take(to, chunk.offset), chunk.count);
  }
}

constexpr std::size_t star_all_to_all_scratch_count(const Work& work, std::size_t) {
  const auto size = static_cast<std::size_t>(work.size);
  return work.rank == 0 ? 2 * size * size * work.count : 0;
}

template <Primitives P>
constexpr void star_barrier(P& p, const Work& work) {
  const auto receive = [&](int from) {
    const Move move{.count = 1, .from = from};
    p.run(std::span(&move, 1));
  };
  if (work.rank == 0) {
    for (int from = 1; from < work.size; ++from) receive(from);
    for (int to = 1; to < work.size; ++to) send(p, to, scratch(0), 1);
  } else {
    send(p, 0, scratch(0), 1);
    receive(0);
  }
}

}  // namespace rondo::kernels
