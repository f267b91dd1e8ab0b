// SPDX-License-Identifier: Apache-2.0
// The vocabulary in which every algorithm is written once. An implementation of the concept moves data (host links,
// CUDA FIFOs) or writes down what would move (RecordingPrimitives); the algorithm cannot tell.
#pragma once
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace rondo::kernels {

inline constexpr int kNobody = -1;

// input: the caller's send buffer. output: the caller's receive buffer. In place they may be the same memory, so an
// algorithm reads a part of input only before it writes the part of output at the same place.
// scratch: Primitives' own memory, scratch_count elements as the algorithm asked.
enum class Buffer : unsigned char { none, input, output, scratch };

struct Place {  // where a Move reads or writes; elements
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
// Each Move travels as ceil(count / slice) FIFO steps; count 0 travels not at all, on both sides.
struct Move {
  std::size_t count = 0;
  int from = kNobody;
  int to = kNobody;
  Place local{};
  Place store{};
  bool complete = false;
};

// A canonical reduction: the left fold over ranks 0, 1, … size-1 of their values for this place. This rank's own value
// is `local`, every other rank's arrives from that rank; the result is complete and goes to `store`.
struct Fold {
  std::size_t count = 0;
  Place local{};
  Place store{};
};

template <class P>
concept Primitives = requires(P p, std::span<const Move> moves, const Fold& fold) {
  // Moves progress together; moves over one link keep the order in which they are listed.
  { p.run(moves) } -> std::same_as<void>;
  { p.fold(fold) } -> std::same_as<void>;
  // Elements that one Move may carry without waiting for its receiver to drain a slot first; the same on every rank.
  { p.chunk_capacity() } -> std::convertible_to<std::size_t>;
};

// What every algorithm is told. `count` is the collective's own count: all_reduce, broadcast, reduce: elements of the
// message; reduce_scatter, all_gather, all_to_all, gather, scatter: elements of one rank's block.
struct Work {
  int rank = 0;
  int size = 1;
  int root = 0;
  std::size_t count = 0;
};

// The verbs, named once.
template <Primitives P>
void send(P& p, int to, Place local, std::size_t count) {
  const Move move{.count = count, .to = to, .local = local};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void copy(P& p, Place local, Place store, std::size_t count) {
  const Move move{.count = count, .local = local, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void recv_copy(P& p, int from, Place store, std::size_t count) {
  const Move move{.count = count, .from = from, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void recv_copy_send(P& p, int from, int to, Place store, std::size_t count) {
  const Move move{.count = count, .from = from, .to = to, .store = store};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void recv_reduce_send(P& p, int from, int to, Place local, std::size_t count) {
  const Move move{.count = count, .from = from, .to = to, .local = local};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void recv_reduce_copy(P& p, int from, Place local, Place store, std::size_t count, bool complete) {
  const Move move{.count = count, .from = from, .local = local, .store = store, .complete = complete};
  p.run(std::span(&move, 1));
}
template <Primitives P>
void recv_reduce_copy_send(P& p, int from, int to, Place local, Place store, std::size_t count, bool complete) {
  const Move move{.count = count, .from = from, .to = to, .local = local, .store = store, .complete = complete};
  p.run(std::span(&move, 1));
}
// Send and receive progress together, so one FIFO slot is enough whatever the count.
template <Primitives P>
void exchange(P& p, const Move& out, const Move& in) {
  const Move moves[] = {out, in};
  p.run(moves);
}

}  // namespace rondo::kernels
