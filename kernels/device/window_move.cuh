// SPDX-License-Identifier: Apache-2.0
// The work of a window operation: a piece of every source, folded in the order of the sources, goes to every target.
// One source: a copy. All threads of the block take part; nobody waits. Where all pointers agree modulo 16, a thread
// has kBatch loads of 16 bytes in flight, whatever the number of sources: it goes through (column, source) pairs.
#pragma once
#include "kernels/device/values.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct WindowArithmetic {  // of an operation
  DataType dtype;
  ReduceOp::Kind op;
  const double* factor;  // of each source, for premultiplied_sum; else null
  double divisor;        // for average; else 1
};

struct WindowMove {  // the same for all threads; tables in shared memory
  const std::byte* const* source;
  std::byte* const* target;
  int sources, targets;
  std::uint64_t bytes;
  const WindowArithmetic* arithmetic;  // null where there is nothing to reduce
};

inline constexpr int kBatch = 8;
inline constexpr unsigned kVector = sizeof(u64x2);

// The running fold between two batches, as bits: its type depends on the dtype. The widest holds 16 floats.
struct FoldCarry {
  std::uint32_t bits[16];
};

// words[i]: source `first + i`, modulo `sources`; where it is the last one, becomes the result of its column. By what
// the operation says.
template <int kWords>
RONDO_DEVICE void fold_words(const WindowMove& move, u64x2 (&words)[kWords], int first, FoldCarry& carry) {
  with_element(move.arithmetic->dtype, move.arithmetic->op, [&](auto element, auto by) {
    using E = decltype(element);
    using Sum = Accumulator<E, decltype(by), u64x2>;
    Sum sum;
    static_assert(sizeof(Sum) <= sizeof(FoldCarry));
    __builtin_memcpy(static_cast<void*>(&sum), &carry, sizeof(Sum));
    int source = first;
    const float part = __is_same(E, Bf16Element) && move.arithmetic->divisor != 1 ? kBf16Part : 1;
    const auto fold = [&](u64x2& word) {
      if constexpr (kFloating<typename E::Value> && __is_same(decltype(by), kernels::Sum)) {  // first touch
        if (move.arithmetic->factor != nullptr) {
          auto values = Values<E, u64x2>::of(word);
          values.multiply(move.arithmetic->factor[source]);
          word = values.bits();
        }
      }
      if (source == 0) {
        sum.start(word, part);
      } else {
        sum.add(word, part);
      }
      if (++source != move.sources) return;
      source = 0;
      if constexpr (kFloating<typename E::Value> && __is_same(decltype(by), kernels::Sum)) {  // before it is rounded
        if (move.arithmetic->divisor != 1) sum.divide(move.arithmetic->divisor * double{part});
      }
      word = sum.bits();
    };
    if constexpr (E::kSmall && sizeof(typename E::Bits) == 1) {  // 16 elements a word: once around, in a loop
      RONDO_NO_UNROLL
      for (int round = 0; round < kWords; ++round) {
        u64x2 word = words[0];
        fold(word);
        RONDO_UNROLL
        for (int i = 1; i < kWords; ++i) words[i - 1] = words[i];
        words[kWords - 1] = word;
      }
    } else {
      RONDO_UNROLL
      for (int i = 0; i < kWords; ++i) fold(words[i]);
    }
    __builtin_memcpy(&carry, static_cast<const void*>(&sum), sizeof(Sum));
  });
}

// How a kernel folds: whatever operations say, or always the same sum.
struct AnyFold {
  static constexpr bool kAny = true;
  using Carry = FoldCarry;
  template <int kWords>
  RONDO_DEVICE static void fold(const WindowMove& move, u64x2 (&words)[kWords], int first, Carry& carry) {
    fold_words(move, words, first, carry);
  }
};
template <class E>
struct SumFold {
  static constexpr bool kAny = false;
  using Carry = Accumulator<E, Sum, u64x2>;
  template <int kWords>
  RONDO_DEVICE static void fold(const WindowMove& move, u64x2 (&words)[kWords], int first, Carry& carry) {
    RONDO_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if (first == 0) {
        carry.start(words[i]);
      } else {
        carry.add(words[i]);
      }
      if (++first != move.sources) continue;
      first = 0;
      words[i] = carry.bits();
    }
  }
};

// A word of one source that a thread has loaded before: that of its first column.
struct Loaded {
  int source = -1;  // none
  u64x2 word{};
};

// Integers are scaled by functions of their own, which have no place among words in flight.
RONDO_DEVICE bool scales_integers(const WindowMove& move) {
  if (move.arithmetic == nullptr || (move.arithmetic->factor == nullptr && move.arithmetic->divisor == 1)) return false;
  return is_integer(move.arithmetic->dtype);
}

// Where a thread is among the (column, source) pairs of a piece.
struct PairCursor {
  unsigned column;
  int source;
  RONDO_DEVICE void advance(int sources, unsigned stride) {
    if (++source != sources) return;
    source = 0;
    column += stride;
  }
};

// `columns` vectors from `offset` on; every pointer is a multiple of 16 there.
template <class Fold>
RONDO_DEVICE void move_vectors(const WindowMove& move, std::uint64_t offset, unsigned columns, const Loaded& loaded) {
  PairCursor next{thread_index(), 0};
  typename Fold::Carry carry{};
  while (next.column < columns) {
    u64x2 words[kBatch]{};
    PairCursor at = next;
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const bool is_here = !Fold::kAny && at.source == loaded.source && at.column == thread_index();
      if (is_here) {
        words[i] = loaded.word;
      } else if (at.column < columns) {
        words[i] = load<u64x2>(move.source[at.source] + offset + std::uint64_t{at.column} * kVector);
      }
      at.advance(move.sources, block_threads());
    }
    if (move.arithmetic != nullptr) Fold::fold(move, words, next.source, carry);
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (next.column < columns && next.source == move.sources - 1) {
        RONDO_NO_UNROLL
        for (int to = 0; to < move.targets; ++to) {
          store<u64x2>(move.target[to] + offset + std::uint64_t{next.column} * kVector, words[i]);
        }
      }
      next.advance(move.sources, block_threads());
    }
  }
}

// At most 16 bytes, in pieces of `width`, a power of two that divides both.
RONDO_DEVICE_CALL u64x2 load_pieces(const std::byte* p, unsigned bytes, unsigned width) {
  std::uint64_t half[2] = {0, 0};
  RONDO_NO_UNROLL
  for (unsigned i = 0; i < bytes; i += width) {
    std::uint64_t piece = 0;
    if (width == 8) {
      piece = load<std::uint64_t>(p + i);
    } else if (width == 4) {
      piece = load<std::uint32_t>(p + i);
    } else if (width == 2) {
      piece = load<std::uint16_t>(p + i);
    } else {
      piece = load<std::uint8_t>(p + i);
    }
    if (i < 8) {
      half[0] |= piece << (8 * i);
    } else {
      half[1] |= piece << (8 * (i - 8));
    }
  }
  return {half[0], half[1]};
}
RONDO_DEVICE_CALL void store_pieces(std::byte* p, u64x2 value, unsigned bytes, unsigned width) {
  RONDO_NO_UNROLL
  for (unsigned i = 0; i < bytes; i += width) {
    const std::uint64_t piece = i < 8 ? value.x >> (8 * i) : value.y >> (8 * (i - 8));
    if (width == 8) {
      store<std::uint64_t>(p + i, piece);
    } else if (width == 4) {
      store<std::uint32_t>(p + i, static_cast<std::uint32_t>(piece));
    } else if (width == 2) {
      store<std::uint16_t>(p + i, static_cast<std::uint16_t>(piece));
    } else {
      store<std::uint8_t>(p + i, static_cast<std::uint8_t>(piece));
    }
  }
}

// Of integers whose sum alone may wrap.
RONDO_DEVICE_CALL u64x2 average_pieces(DataType dtype, const std::byte* const* source, int sources, std::uint64_t at,
                                       unsigned bytes, unsigned width) {
  return average_words<u64x2>(dtype, sources, [&](int i) { return load_pieces(source[i] + at, bytes, width); });
}

// Bytes [offset, end) in columns of up to 16 bytes, accessed by what all pointers are a multiple of (`alignment`).
template <class Fold>
RONDO_DEVICE void move_pieces(const WindowMove& move, std::uint64_t offset, std::uint64_t end, unsigned alignment) {
  RONDO_NO_UNROLL
  for (std::uint64_t at = offset + thread_index() * std::uint64_t{kVector}; at < end; at += block_threads() * kVector) {
    const unsigned bytes = end - at < kVector ? static_cast<unsigned>(end - at) : kVector;
    const unsigned bits = alignment | bytes | static_cast<unsigned>(at);
    const unsigned width = bits & (~bits + 1);
    typename Fold::Carry carry{};
    u64x2 words[1]{};
    const WindowArithmetic* const with = move.arithmetic;
    const bool scales = Fold::kAny && scales_integers(move),
               widens_all = scales && with->divisor != 1 && widens(with->dtype);
    if (widens_all) words[0] = average_pieces(with->dtype, move.source, move.sources, at, bytes, width);
    RONDO_NO_UNROLL
    for (int source = 0; source < move.sources && !widens_all; ++source) {
      words[0] = load_pieces(move.source[source] + at, bytes, width);
      if (scales && with->factor != nullptr) words[0] = multiply(with->dtype, words[0], with->factor[source]);
      if (with != nullptr) Fold::fold(move, words, source, carry);
      if (scales && with->divisor != 1 && source + 1 == move.sources) {
        words[0] = divide(with->dtype, words[0], with->divisor);
      }
    }
    RONDO_NO_UNROLL
    for (int to = 0; to < move.targets; ++to) store_pieces(move.target[to] + at, words[0], bytes, width);
  }
}

RONDO_DEVICE unsigned low_bits(const std::byte* p) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)) % kVector;
}

// By all threads of the block. Sources and targets may be the same memory, but overlap no other way. `loaded`: where
// its source is a multiple of 16.
template <class Fold>
RONDO_DEVICE void move_window(const WindowMove& move, const Loaded& loaded = {}) {
  unsigned all = 8, differing = 0;  // pieces are of 8 bytes at most
  const unsigned start = low_bits(move.source[0]);
  RONDO_NO_UNROLL
  for (int i = 0; i < move.sources; ++i) {
    all |= low_bits(move.source[i]);
    differing |= low_bits(move.source[i]) ^ start;
  }
  RONDO_NO_UNROLL
  for (int i = 0; i < move.targets; ++i) {
    all |= low_bits(move.target[i]);
    differing |= low_bits(move.target[i]) ^ start;
  }
  std::uint64_t head = (kVector - start) % kVector;
  std::uint64_t columns = 0;
  if (differing == 0 && !(Fold::kAny && scales_integers(move)) && move.bytes >= head + kVector) {
    columns = (move.bytes - head) / kVector;
    move_vectors<Fold>(move, head, static_cast<unsigned>(columns), loaded);
  } else {
    head = 0;
  }
  RONDO_NO_UNROLL
  for (int side = head == 0 ? 1 : 0; side < 2; ++side) {  // one place in the code for both ends
    move_pieces<Fold>(move, side == 0 ? 0 : head + columns * kVector, side == 0 ? head : move.bytes, all);
  }
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
