// SPDX-License-Identifier: Apache-2.0
// What a block of a FIFO kernel knows, in shared memory: its links, the moves in progress, the slice that all threads
// are moving. Written by one thread (links: by one thread each) between barriers; see progress.cuh.
#pragma once
#include "kernels/algorithms/primitives.hpp"
#include "kernels/device/access.cuh"
#include "kernels/device/values.cuh"
#include "kernels/device/wait.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct Link {          // with one peer on this block's channel
  std::byte* mine;     // mailbox, followed by the slots: mine, which the peer writes
  std::byte* theirs;   // and the peer's
  std::uint64_t sent;  // steps; in the mailbox between kernels
  std::uint64_t received;
  std::uint64_t freed;   // of my steps, at least: as last seen
  std::uint64_t posted;  // to me, at least
};
RONDO_DEVICE Mailbox& mailbox_at(std::byte* p) { return *reinterpret_cast<Mailbox*>(p); }

struct Active {  // a move in progress; bytes
  const std::byte* local;
  std::byte* store;
  std::uint64_t bytes, done;
  DeviceSignature signature;
  std::uint64_t key;     // of the signature
  std::uint64_t offset;  // of `local` in `window`
  int from, to;
  int window;      // -1: what is sent goes through the slots
  bool may_refer;  // what is received may be steps that refer
  bool complete;   // divide
  bool scale;      // multiply what is local
  bool finished;
  std::uint32_t behind;  // earlier moves over the same links, a bit each
};

struct Slice {             // of a move: one step on each of its links
  const Active* active;    // until it has been moved
  const std::byte* local;  // or, where the step that was received refers, the sender's memory
  std::byte* store;
  std::byte* from_slot;  // null: receives nothing
  std::byte* to_slot;    // null: sends nothing
  std::uint64_t from_step, to_step;
  std::uint32_t bytes;
  std::int8_t from, to;
  bool refers;  // the step that was received
};

struct Round {  // slices of different moves
  unsigned slices;
  bool last;     // of all moves in progress
  bool goes_on;  // of one of these moves there is more
  bool side_by_side;
  bool is_followed;  // while it was moved, the next one has been chosen
  Slice slice[kMaxMessages];
};

struct Crew {  // the threads that move a slice, whole warps, and which of them this one is
  unsigned thread, threads;
};

struct Source {  // of a fold: one rank's slot
  const std::byte* slot;
  std::uint64_t step;
};

struct Arithmetic {
  DataType dtype;
  ReduceOp::Kind op;
  double factor, divisor;
};

struct Share {
  Work work;  // of one channel
  const std::byte* input;
  std::byte* output;
};

struct FifoBlock {
  Patience patience;
  std::uint32_t slots, slot_bytes, slice_bytes;
  int rank, world_size;
  bool failed;
  Arithmetic arithmetic;
  std::uint64_t key;        // of patience.operation
  Share share;              // of it: what is needed after every move would take registers through all of them
  int turn;                 // the next round
  std::uint64_t lent;       // peers to whom steps of this launch referred; a bit each
  DeviceSignature lending;  // of the latest of those messages
  Round round[3];
  Active active[kMaxMessages];
  Link link[kMaxRanks];
  Source source[kMaxRanks];
  std::size_t send_counts[kMaxRanks], send_offsets[kMaxRanks], recv_counts[kMaxRanks], recv_offsets[kMaxRanks];
};

RONDO_DEVICE std::byte* slot_of(const FifoBlock& block, std::byte* mailbox, std::uint64_t step) {
  return mailbox + sizeof(Mailbox) + (step & (block.slots - 1)) * block.slot_bytes;
}

// What takes too many registers to be done for several words side by side, or is rare: 8 bytes at a time.
template <class F>
RONDO_DEVICE std::uint64_t by_halves(std::uint64_t word, F&& f) {
  return f(word, 0);
}
template <class F>
RONDO_DEVICE u64x2 by_halves(u64x2 word, F&& f) {
  return {f(word.x, 0), f(word.y, 1)};
}
RONDO_DEVICE std::uint64_t half_of(std::uint64_t word, int) { return word; }
RONDO_DEVICE std::uint64_t half_of(u64x2 word, int half) { return half == 0 ? word.x : word.y; }

RONDO_DEVICE_CALL std::uint64_t combine_fp8(DataType dtype, ReduceOp::Kind op, std::uint64_t a, std::uint64_t b) {
  with_element(dtype, op, [&](auto element, auto by) {
    using E = decltype(element);
    if constexpr (E::kSmall && sizeof(typename E::Bits) == 1) a = combine<E, decltype(by)>(a, b);
  });
  return a;
}
template <int kWords, class W>
RONDO_DEVICE void combine_all(DataType dtype, ReduceOp::Kind op, W (&a)[kWords], const W (&b)[kWords]) {
  if (dtype == DataType::f8e4m3 || dtype == DataType::f8e5m2) {
    RONDO_UNROLL
    for (int i = 0; i < kWords; ++i) {
      a[i] = by_halves(a[i],
                       [&](std::uint64_t word, int half) { return combine_fp8(dtype, op, word, half_of(b[i], half)); });
    }
    return;
  }
  with_element(dtype, op, [&](auto element, auto by) {
    using E = decltype(element);
    if constexpr (!E::kSmall || sizeof(typename E::Bits) != 1) {
      RONDO_UNROLL
      for (int i = 0; i < kWords; ++i) a[i] = combine<E, decltype(by)>(a[i], b[i]);
    }
  });
}

template <class W>
RONDO_DEVICE W multiplied(const Arithmetic& with, W word) {
  return by_halves(word, [&](std::uint64_t half, int) { return multiply(with.dtype, half, with.factor); });
}
template <class W>
RONDO_DEVICE W divided(const Arithmetic& with, W word) {
  return by_halves(word, [&](std::uint64_t half, int) { return divide(with.dtype, half, with.divisor); });
}

// What every protocol does with the words of a slice once it has them: `value` is what was received, then the result.
template <int kWords, class W>
RONDO_DEVICE void compute(const FifoBlock& block, const Slice& slice, W (&value)[kWords], W (&local)[kWords]) {
  const Arithmetic& with = block.arithmetic;
  if (slice.active->scale) {
    RONDO_UNROLL
    for (int i = 0; i < kWords; ++i) local[i] = multiplied(with, local[i]);
  }
  if (slice.local != nullptr && slice.from_slot != nullptr && !slice.refers) {
    combine_all(with.dtype, with.op, value, local);
  } else if (slice.local != nullptr) {
    RONDO_UNROLL
    for (int i = 0; i < kWords; ++i) value[i] = local[i];
  }
  if (slice.active->complete) {
    RONDO_UNROLL
    for (int i = 0; i < kWords; ++i) value[i] = divided(with, value[i]);
  }
}

// The canonical left fold of one word: `word_of(rank)` in rank order, rounded once.
template <class W, class F>
RONDO_DEVICE W fold_word(const FifoBlock& block, F&& word_of) {
  constexpr int kBatch = 4;  // loads in flight
  const Arithmetic& with = block.arithmetic;
  const bool averages = with.op == ReduceOp::average;
  if (averages && widens(with.dtype)) return average_words<W>(with.dtype, block.world_size, word_of);
  W result{};
  bool is_complete = !averages;
  with_element(with.dtype, with.op, averages, [&](auto element, auto op) {
    using E = decltype(element);
    if constexpr (sizeof(typename E::Bits) <= sizeof(W)) {
      Accumulator<E, decltype(op), W> sum;
      sum.start(word_of(0));
      for (int rank = 1; rank < block.world_size; rank += kBatch) {
        W word[kBatch];
        RONDO_UNROLL
        for (int k = 0; k < kBatch; ++k) word[k] = rank + k < block.world_size ? word_of(rank + k) : W{};
        RONDO_UNROLL
        for (int k = 0; k < kBatch; ++k) {
          if (rank + k < block.world_size) sum.add(word[k]);
        }
      }
      if (E::kSmall && averages) sum.divide(with.divisor);
      result = sum.bits();
      is_complete = is_complete || E::kSmall;
    }
  });
  // Integers have come as unsigned ones; f32 and f64 are as they are.
  return is_complete ? result : divided(with, result);
}

struct FoldSlice {  // this rank's part in one step of a fold, equal in all threads
  const std::byte* local;
  std::byte* store;
  std::uint32_t bytes;
  bool scale;
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
