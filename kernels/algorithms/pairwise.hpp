// SPDX-License-Identifier: Apache-2.0
// Pairwise exchange: in step s every rank sends to rank + s and receives from rank - s, so each link is used by one
// pair at a time (R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005); or in pairs, with rank xor s, which lets a
// rank that had to wait go on with one peer alone. Every block travels once, straight to where it is needed. Blocks may
// differ in length; both ends of a link cut a block into the same chunks. The rank that is furthest behind can always
// go on, so an exchange needs one FIFO slot, however long the blocks.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

struct Partners {
  int to, from;
};
constexpr Partners partners(const Work& work, int step, bool in_pairs) {
  if (in_pairs) return {work.rank ^ step, work.rank ^ step};
  return {ahead(work, work.rank, step), ahead(work, work.rank, -step)};
}

// Block i of input goes to rank i; block i of output came from rank i. Needs two buffers.
template <Primitives P>
constexpr void pairwise_all_to_all(P& p, const Work& work) {
  const Range mine = work.send_block(work.rank);
  copy(p, input(mine.offset), output(work.recv_block(work.rank).offset), mine.count);
  // Of counts that vary a rank knows only its own, so nobody could tell what the others choose.
  const bool whole = work.send_counts.empty() && work.count <= p.chunk_capacity();
  const bool in_pairs = whole && (work.size & (work.size - 1)) == 0;
  const auto moves_of = [&](int step, Range round) {
    const auto [to, from] = partners(work, step, in_pairs);
    const Range out = clip(work.send_block(to), round);
    const Range in = clip(work.recv_block(from), round);
    return std::array{Move{.count = out.count, .to = to, .local = input(out.offset)},
                      Move{.count = in.count, .from = from, .store = output(in.offset)}};
  };
  if constexpr (kTakesSteps<P>) {
    each_step(p, work.size - 1, [&](int step) { return moves_of(step, {0, SIZE_MAX}); });
  } else {
    for (int step = 1; step < work.size; ++step) {
      const auto [to, from] = partners(work, step, in_pairs);
      const std::size_t sent = work.send_block(to).count, received = work.recv_block(from).count;
      for (const Range round : Rounds(sent > received ? sent : received, p.chunk_capacity())) {
        p.run(moves_of(step, round));
      }
    }
  }
}

// Everybody sends its own block to everybody.
template <Primitives P>
constexpr void pairwise_all_gather(P& p, const Work& work) {
  const Range mine = work.recv_block(work.rank);
  copy(p, input(0), output(mine.offset), mine.count);
  for (const Range round : Rounds(longest_recv_block(work), p.chunk_capacity())) {
    each_step(p, work.size - 1, [&](int step) {
      const int from = ahead(work, work.rank, -step);
      const Range out = clip(mine, round);
      const Range in = clip(work.recv_block(from), round);
      return std::array{Move{.count = out.count, .to = ahead(work, work.rank, step), .local = output(out.offset)},
                        Move{.count = in.count, .from = from, .store = output(in.offset)}};
    });
  }
}

// Everybody sends everybody the block that the other reduces: own block first, then those of rank - 1, rank - 2, ...
// Where steps progress together everything is sent first: a link has room for it.
template <Primitives P>
constexpr void pairwise_reduce_scatter(P& p, const Work& work) {
  for (const Range round : Rounds(work.count, p.chunk_capacity())) {
    Location mine = input(work.send_block(work.rank).offset + round.offset);
    const Location result = output(round.offset);
    const auto out = [&](int step) {
      const int to = ahead(work, work.rank, step);
      return Move{.count = round.count, .to = to, .local = input(work.send_block(to).offset + round.offset)};
    };
    if constexpr (kTakesSteps<P>) each_step(p, work.size - 1, [&](int step) { return std::array{out(step)}; });
    for (int step = 1; step < work.size; ++step) {
      const Move in{.count = round.count,
                    .from = ahead(work, work.rank, -step),
                    .local = mine,
                    .store = result,
                    .complete = step == work.size - 1};
      if constexpr (kTakesSteps<P>) {
        p.run(std::span(&in, 1));
      } else {
        exchange(p, out(step), in);
      }
      mine = result;
    }
  }
}

}  // namespace rondo::kernels
