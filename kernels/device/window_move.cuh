// SPDX-License-Identifier: Apache-2.0
// The work of a window operation: a piece of every source, folded in the order of the sources, goes to every target.
// One source: a copy. All threads of the block take part; nobody waits. Where all pointers agree modulo 16, a thread
// has kBatch loads of 16 bytes in flight, whatever the number of sources: it goes through (column, source) pairs.
#pragma once
#include "kernels/device/values.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

struct WindowMove {  // the same for all threads; tables in shared memory or the kernel's argument
  const std::byte* const* source;
  std::byte* const* target;
  int sources, targets;
  std::uint64_t bytes;
  DataType dtype;
  ReduceOp::Kind op;     // sum where there is nothing to reduce
  const double* factor;  // of each source, for premultiplied_sum; else null
  double divisor;        // for average; else 1
};

inline constexpr int kBatch = 8;
inline constexpr unsigned kVector = sizeof(u64x2);

// The running fold between two batches, as bits: its type depends on the dtype. The widest holds 16 floats.
struct FoldCarry {
  std::uint32_t bits[16];
};

// words[i]: source `first + i`, modulo `sources`; where it is the last one, becomes the result of its column.
template <int kWords>
RONDO_DEVICE void fold_words(const WindowMove& move, u64x2 (&words)[kWords], int first, FoldCarry& carry) {
  with_element(move.dtype, move.op, [&](auto element, auto by) {
    using E = decltype(element);
    using Sum = Accumulator<E, decltype(by), u64x2>;
    Sum sum;
    static_assert(sizeof(Sum) <= sizeof(FoldCarry));
    __builtin_memcpy(static_cast<void*>(&sum), &carry, sizeof(Sum));
    int source = first;
    const auto fold = [&](u64x2& word) {
      if (source == 0) {
        sum.start(word);
      } else {
        sum.add(word);
      }
      if (++source != move.sources) return;
      source = 0;
      if constexpr (E::kSmall) {  // divided before it is rounded
        if (move.divisor != 1) sum.divide(move.divisor);
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

// Averages of other types; after fold_words.
RONDO_DEVICE bool divides_words(const WindowMove& move) {
  return move.divisor != 1 && move.dtype != DataType::f16 && move.dtype != DataType::bf16 &&
         move.dtype != DataType::f8e4m3 && move.dtype != DataType::f8e5m2;
}

// Where a thread is among the (column, source) pairs of a piece.
struct PairCursor {
  std::uint64_t column;
  int source;
  RONDO_DEVICE void advance(int sources, unsigned stride) {
    if (++source != sources) return;
    source = 0;
    column += stride;
  }
};

// `columns` vectors from `offset` on; every pointer is a multiple of 16 there.
RONDO_DEVICE void move_vectors(const WindowMove& move, std::uint64_t offset, std::uint64_t columns) {
  PairCursor next{thread_index(), 0};
  FoldCarry carry{};
  while (next.column < columns) {
    u64x2 words[kBatch]{};
    PairCursor at = next;
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (at.column < columns) words[i] = load<u64x2>(move.source[at.source] + offset + at.column * kVector);
      at.advance(move.sources, block_threads());
    }
    if (move.factor != nullptr) {
      at = next;
      RONDO_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        words[i] = multiply(move.dtype, words[i], move.factor[at.source]);
        at.advance(move.sources, block_threads());
      }
    }
    if (move.sources > 1) fold_words(move, words, next.source, carry);
    if (divides_words(move)) {
      RONDO_UNROLL
      for (int i = 0; i < kBatch; ++i) words[i] = divide(move.dtype, words[i], move.divisor);
    }
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (next.column < columns && next.source == move.sources - 1) {
        for (int to = 0; to < move.targets; ++to) {
          store<u64x2>(move.target[to] + offset + next.column * kVector, words[i]);
        }
      }
      next.advance(move.sources, block_threads());
    }
  }
}

// At most 16 bytes, in pieces of `width`, a power of two that divides both.
RONDO_DEVICE_CALL u64x2 load_pieces(const std::byte* p, unsigned bytes, unsigned width) {
  std::uint64_t half[2] = {0, 0};
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

// Bytes [offset, end) in columns of up to 16 bytes, accessed by what all pointers are a multiple of (`alignment`).
RONDO_DEVICE void move_pieces(const WindowMove& move, std::uint64_t offset, std::uint64_t end, unsigned alignment) {
  for (std::uint64_t at = offset + thread_index() * std::uint64_t{kVector}; at < end; at += block_threads() * kVector) {
    const unsigned bytes = end - at < kVector ? static_cast<unsigned>(end - at) : kVector;
    const unsigned bits = alignment | bytes | static_cast<unsigned>(at);
    const unsigned width = bits & (~bits + 1);
    FoldCarry carry{};
    u64x2 words[1];
    for (int source = 0; source < move.sources; ++source) {
      words[0] = load_pieces(move.source[source] + at, bytes, width);
      if (move.factor != nullptr) words[0] = multiply(move.dtype, words[0], move.factor[source]);
      if (move.sources > 1) fold_words(move, words, source, carry);
    }
    if (divides_words(move)) words[0] = divide(move.dtype, words[0], move.divisor);
    for (int to = 0; to < move.targets; ++to) store_pieces(move.target[to] + at, words[0], bytes, width);
  }
}

RONDO_DEVICE unsigned low_bits(const std::byte* p) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)) % kVector;
}

// By all threads of the block. Sources and targets may be the same memory, but overlap no other way.
RONDO_DEVICE_CALL void move_window(const WindowMove& move) {
  unsigned all = 8, differing = 0;  // pieces are of 8 bytes at most
  const unsigned start = low_bits(move.source[0]);
  for (int i = 0; i < move.sources; ++i) {
    all |= low_bits(move.source[i]);
    differing |= low_bits(move.source[i]) ^ start;
  }
  for (int i = 0; i < move.targets; ++i) {
    all |= low_bits(move.target[i]);
    differing |= low_bits(move.target[i]) ^ start;
  }
  std::uint64_t head = (kVector - start) % kVector;
  std::uint64_t columns = 0;
  if (differing == 0 && move.bytes >= head + kVector) {
    columns = (move.bytes - head) / kVector;
    move_vectors(move, head, columns);
  } else {
    head = 0;
  }
  RONDO_NO_UNROLL
  for (int side = head == 0 ? 1 : 0; side < 2; ++side) {  // one place in the code for both ends
    move_pieces(move, side == 0 ? 0 : head + columns * kVector, side == 0 ? head : move.bytes, all);
  }
}

// A plain copy, by all threads of the block.
RONDO_DEVICE_CALL void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const unsigned all = low_bits(from) | low_bits(to) | 8;
  std::uint64_t head = (kVector - low_bits(from)) % kVector;
  std::uint64_t body = 0;
  if (low_bits(from) == low_bits(to) && bytes >= head + kVector) {
    body = (bytes - head) / kVector * kVector;
  } else {
    head = 0;
  }
  const std::uint64_t stride = block_threads() * std::uint64_t{kVector};
  for (std::uint64_t at = thread_index() * std::uint64_t{kVector}; at < body; at += kBatch * stride) {
    u64x2 words[kBatch]{};
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (at + i * stride < body) words[i] = load<u64x2>(from + head + at + i * stride);
    }
    RONDO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (at + i * stride < body) store<u64x2>(to + head + at + i * stride, words[i]);
    }
  }
  RONDO_NO_UNROLL
  for (int side = head == 0 ? 1 : 0; side < 2; ++side) {
    const std::uint64_t end = side == 0 ? head : bytes;
    std::uint64_t at = (side == 0 ? 0 : head + body) + thread_index() * std::uint64_t{kVector};
    for (; at < end; at += stride) {
      const unsigned left = end - at < kVector ? static_cast<unsigned>(end - at) : kVector;
      const unsigned bits = all | left | static_cast<unsigned>(at);
      store_pieces(to + at, load_pieces(from + at, left, bits & (~bits + 1)), left, bits & (~bits + 1));
    }
  }
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
