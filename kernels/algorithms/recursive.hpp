// SPDX-License-Identifier: Apache-2.0
// Recursive doubling and halving: partners at distances that are powers of two (R. Thakur, R. Rabenseifner, W. Gropp,
// IJHPCA 19(1), 2005; halving and doubling: R. Rabenseifner, "Optimization of collective reduction operations", 2004).
// When n is not a power of two, the first 2 * extra ranks form pairs whose even rank lends its data to the odd one and
// gets the result back. Both partners combine the same two values, and operators are commutative bit for bit.
#pragma once
#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

struct PowerOfTwo {
  int size = 1;   // the largest power of two that is not above n
  int extra = 0;  // n - size
  int rank = 0;   // among `size`; kNobody for a rank that lends its data
  constexpr explicit PowerOfTwo(const Work& work) {
    while (size * 2 <= work.size) size *= 2;
    extra = work.size - size;
    rank = work.rank >= 2 * extra ? work.rank - extra : work.rank % 2 == 1 ? work.rank / 2 : kNobody;
  }
  constexpr int world_rank(int of) const { return of < extra ? 2 * of + 1 : of + extra; }
  constexpr bool lends() const { return rank == kNobody; }
  constexpr bool borrows(const Work& work) const { return !lends() && work.rank < 2 * extra; }
};

// log2(n) steps, each of the whole chunk; what is sent lies in the FIFO before the partner's is received.
template <Primitives P>
constexpr void recursive_doubling_all_reduce(P& p, const Work& work) {
  const PowerOfTwo group(work);
  for (const Range chunk : Rounds(work.count, p.chunk_capacity())) {
    const Location result = output(chunk.offset);
    if (group.lends()) {
      send(p, work.rank + 1, input(chunk.offset), chunk.count);
      recv_copy(p, work.rank + 1, result, chunk.count);
      continue;
    }
    Location mine = input(chunk.offset);
    if (group.borrows(work)) {
      recv_reduce_copy(p, work.rank - 1, mine, result, chunk.count, false);
      mine = result;
    }
    for (int distance = 1; distance < group.size; distance *= 2) {
      const int partner = group.world_rank(group.rank ^ distance);
      send(p, partner, mine, chunk.count);
      recv_reduce_copy(p, partner, mine, result, chunk.count, 2 * distance == group.size);
      mine = result;
    }
    if (group.borrows(work)) send(p, work.rank - 1, result, chunk.count);
  }
}

// Elements of a round whose halves fit a chunk: a multiple of the group's size, so that its parts are equal.
constexpr std::size_t halving_round(const PowerOfTwo& group, std::size_t capacity) {
  const auto size = static_cast<std::size_t>(group.size);
  const std::size_t equal_parts = 2 * capacity / size * size;
  return group.extra == 0 && equal_parts > capacity ? equal_parts : capacity;
}

// Reduce-scatter by halving: after log2(n) steps rank r of the group holds part r, complete. All-gather by doubling
// back. Traffic as a ring's in 2 log2(n) steps. Each exchange sends one half of what was kept and receives the other.
template <Primitives P>
constexpr void halving_doubling_all_reduce(P& p, const Work& work) {
  const PowerOfTwo group(work);
  for (const Range round : Rounds(work.count, halving_round(group, p.chunk_capacity()))) {
    const Location result = output(round.offset);
    if (group.lends()) {
      send(p, work.rank + 1, input(round.offset), round.count);
      recv_copy(p, work.rank + 1, result, round.count);
      continue;
    }
    const bool borrows = group.borrows(work);
    if (borrows) recv_reduce_copy(p, work.rank - 1, input(round.offset), result, round.count, false);
    Buffer mine = borrows ? Buffer::output : Buffer::input;

    int first = 0;  // parts [first, first + kept) are still this rank's to reduce
    for (int kept = group.size / 2; kept > 0; kept /= 2) {
      const int partner = group.world_rank(group.rank ^ kept);
      const int other = (group.rank & kept) != 0 ? first : first + kept;
      first = (group.rank & kept) != 0 ? first + kept : first;
      const Range out = parts(round, group.size, other, other + kept);
      const Range in = parts(round, group.size, first, first + kept);
      exchange(p, {.count = out.count, .to = partner, .local = {mine, out.offset}},
               {.count = in.count,
                .from = partner,
                .local = {mine, in.offset},
                .store = output(in.offset),
                .complete = kept == 1});
      mine = Buffer::output;
    }
    for (int kept = 1; kept < group.size; kept *= 2) {
      const int partner = group.world_rank(group.rank ^ kept);
      const int other = first ^ kept;
      const Range out = parts(round, group.size, first, first + kept);
      const Range in = parts(round, group.size, other, other + kept);
      exchange(p, {.count = out.count, .to = partner, .local = output(out.offset)},
               {.count = in.count, .from = partner, .store = output(in.offset)});
      first &= ~kept;
    }
    if (borrows) send(p, work.rank - 1, result, round.count);
  }
}

}  // namespace rondo::kernels
