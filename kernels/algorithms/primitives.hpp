// SPDX-License-Identifier: Apache-2.0
// The vocabulary in which every algorithm is written once. An implementation of the concept moves data (host links,
// CUDA FIFOs) or writes down what would move (RecordingPrimitives); the algorithm cannot tell.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <span>

namespace rondo::kernels {

inline constexpr int kNobody = -1;

// input: the caller's send buffer. output: the caller's receive buffer. In place they may be the same memory, so an
// algorithm reads a part of input only before it writes the part of output at the same place.
// scratch: Primitives' own memory, scratch_count elements as the algorithm asked.
enum class Buffer : unsigned char { none, input, output, scratch };

struct Location {  // where a Move reads or writes; elements
  Buffer buffer = Buffer::none;
  std::size_t offset = 0;
};

// One value of `count` elements on its way:
//   value = received from `from`                      (from only)
//         | local                                     (local only)
//         | received op local                         (both)
//   then, if `complete`, the operator's last touch (average divides);
//   then stored at `store` and / or sent to `to`.
// Reading Buffer::input applies the operator's first touch (premul_sum multiplies) when the collective reduces.
// Each Move travels as ceil(count / slice) FIFO steps; count 0 travels not at all, on both sides. A Move that receives
// and sends does so slice by slice: slice i is taken from one link and put on the other at once. A Move with neither
// store nor to drops what it receives.
struct Move {
  std::size_t count = 0;
  int from = kNobody;
  int to = kNobody;
  Location local{};
  Location store{};
  bool complete = false;
};

// A canonical reduction: the left fold over ranks 0, 1, … size-1 of their values for this place. This rank's own value
// is `local`, every other rank's arrives from that rank; the result is complete and goes to `store`.
struct Fold {
  std::size_t count = 0;
  Location local{};
  Location store{};
};

template <class P>
concept Primitives = requires(P p, std::span<const Move> moves, const Fold& fold) {
  // Moves progress together, so none may read or write what another writes; moves over one link keep the order in
  // which they are listed.
  { p.run(moves) } -> std::same_as<void>;
  { p.fold(fold) } -> std::same_as<void>;
  // Elements that one Move may carry without waiting for its receiver to drain a slot first; the same on every rank,
  // at least 1. No algorithm sends or receives more in one Move; a Move without a peer may have any count.
  // See LinkLayout for what a link must have room for.
  { p.chunk_capacity() } -> std::convertible_to<std::size_t>;
};

struct Range {  // elements
  std::size_t offset = 0;
  std::size_t count = 0;
};

// What every algorithm is told. `count` is the collective's own count: all_reduce, broadcast, reduce: elements of the
// message; reduce_scatter, all_gather, all_to_all, gather, scatter: elements of one rank's block.
// Variable counts: where a buffer is made of one block per rank, counts and offsets (one per rank, else empty) say
// where each lies; the same on all ranks, but for all_to_all, where recv_counts[i] here is send_counts[rank] there.
struct Work {
  int rank = 0;
  int size = 1;
  int root = 0;
  std::size_t count = 0;
  std::span<const std::size_t> send_counts{};  // blocks of input: scatter, all_to_all
  std::span<const std::size_t> send_offsets{};
  std::span<const std::size_t> recv_counts{};  // blocks of output: all_gather, gather, all_to_all
  std::span<const std::size_t> recv_offsets{};

  constexpr Range send_block(int of) const { return block(send_counts, send_offsets, of); }
  constexpr Range recv_block(int of) const { return block(recv_counts, recv_offsets, of); }

 private:
  constexpr Range block(std::span<const std::size_t> counts, std::span<const std::size_t> offsets, int of) const {
    const auto index = static_cast<std::size_t>(of);
    if (counts.empty()) return {index * count, count};
    return {offsets[index], counts[index]};
  }
};

// The verbs, named once.
template <Primitives P>
constexpr void send(P& p, int to, Location local, std::size_t count) {
  const Move move{.count = count, .to = to, .local = local};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void copy(P& p, Location local, Location store, std::size_t count) {
  const Move move{.count = count, .local = local, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void copy_send(P& p, int to, Location local, Location store, std::size_t count) {
  const Move move{.count = count, .to = to, .local = local, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void recv_copy(P& p, int from, Location store, std::size_t count) {
  const Move move{.count = count, .from = from, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void recv_copy_send(P& p, int from, int to, Location store, std::size_t count) {
  const Move move{.count = count, .from = from, .to = to, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void recv_reduce_send(P& p, int from, int to, Location local, std::size_t count) {
  const Move move{.count = count, .from = from, .to = to, .local = local};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void recv_reduce_copy(P& p, int from, Location local, Location store, std::size_t count, bool complete) {
  const Move move{.count = count, .from = from, .local = local, .store = store, .complete = complete};
  p.run(std::span(&move, 1));
}
template <Primitives P>
constexpr void recv_reduce_copy_send(P& p, int from, int to, Location local, Location store, std::size_t count,
                                     bool complete) {
  const Move move{.count = count, .from = from, .to = to, .local = local, .store = store, .complete = complete};
  p.run(std::span(&move, 1));
}
// Implementations that have steps progress together: devices, where a step is dear and others wait meanwhile.
template <class P>
inline constexpr bool kTakesSteps = requires(P p, std::array<Move, 1> (*moves_of)(int)) {
  p.run_steps(1, moves_of);
};

// `moves_of(step)`, an array, of the steps 1 to `last`, each over links of its own, and none needs another: devices let
// them progress together, hosts take one after the other.
template <Primitives P, class F>
constexpr void each_step(P& p, int last, F&& moves_of) {
  if constexpr (kTakesSteps<P>) {
    p.run_steps(last, moves_of);
  } else {
    for (int step = 1; step <= last; ++step) p.run(moves_of(step));
  }
}
// Send and receive progress together, so one FIFO slot is enough whatever the count.
template <Primitives P>
constexpr void exchange(P& p, const Move& out, const Move& in) {
  const Move moves[] = {out, in};
  p.run(moves);
}

}  // namespace rondo::kernels
