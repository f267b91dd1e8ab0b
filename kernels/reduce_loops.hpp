// SPDX-License-Identifier: Apache-2.0
// The loops behind kernels/reduce.hpp, for whatever instruction set the including source is compiled with. All names
// have internal linkage and nothing of std is called (types only): no function compiled for a newer processor may be
// merged with another source's copy. `out` may equal an input but never overlaps one partly, so no iteration sees
// another's store.
#pragma once
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "kernels/convert.hpp"
#include "kernels/reduce_operators.hpp"
#include "kernels/reduce_table.hpp"

#ifdef RONDO_INDEPENDENT
#elif defined(__clang__)
#define RONDO_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define RONDO_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace rondo::kernels {
namespace {

constexpr std::size_t kBlock = 512;     // elements; three blocks of float lie well inside a first-level cache
constexpr std::size_t kRegisters = 64;  // elements; three of these as floats fit the vector registers

// ---- element types: how a block of them becomes a block of what is computed in, and back ----

template <class T>
struct Plain {  // computed in as it is
  using Stored = T;
  using Value = T;
};
template <class Bits, class Format>
struct Small {  // computed in float
  using Stored = Bits;
  using Value = float;
};

template <class Bits, class Format>
[[gnu::always_inline]] inline void widen(Small<Bits, Format>, float* out, const Bits* in, std::size_t count) {
  RONDO_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = Format::widen(in[i]);
}
template <class Bits, class Format>
[[gnu::always_inline]] inline void narrow(Small<Bits, Format>, Bits* out, const float* in, std::size_t count) {
  RONDO_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Bits>(Format::narrow(in[i]));
}

using F16 = Small<std::uint16_t, Half>;
using Bf16 = Small<std::uint16_t, Bfloat>;

#ifdef __F16C__
// The processor's own conversions round as Half does.
#ifdef __AVX512F__
constexpr __mmask16 kAll = 0xffff;  // masked by nothing: GCC 12 warns about the undefined operand of the plain forms
#endif
constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
[[gnu::always_inline]] inline void widen(F16, float* out, const std::uint16_t* in, std::size_t count) {
  std::size_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= count; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(kAll, bits));
  }
#endif
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
  }
  for (; i < count; ++i) out[i] = Half::widen(in[i]);
}
[[gnu::always_inline]] inline void narrow(F16, std::uint16_t* out, const float* in, std::size_t count) {
  std::size_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= count; i += 16) {
    const __m256i bits = _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(in + i), kToNearest);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bits);
  }
#endif
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), kToNearest);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), bits);
  }
  for (; i < count; ++i) out[i] = static_cast<std::uint16_t>(Half::narrow(in[i]));
}
#endif

// ---- out = a op b ----

template <class Op, class Value>
[[gnu::always_inline]] inline void apply(Value* out, const Value* a, const Value* b, std::size_t count) {
  RONDO_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = Op::apply(a[i], b[i]);
}

[[gnu::always_inline]] inline std::size_t block_at(std::size_t first, std::size_t count) {
  return count - first < kBlock ? count - first : kBlock;
}

template <class E, class Op>
[[gnu::always_inline]] inline void combine_block(E, Op, typename E::Stored* out, const typename E::Stored* a,
                                                 const typename E::Stored* b, std::size_t count) {
  float x[kRegisters], y[kRegisters];
  widen(E{}, x, a, count);
  widen(E{}, y, b, count);
  apply<Op>(x, x, y, count);
  narrow(E{}, out, x, count);
}

// Two bf16 in a word are the upper halves of two floats already: nothing has to be spread out and packed again.
template <class Op>
[[gnu::always_inline]] inline void combine_block(Bf16, Op, std::uint16_t* out, const std::uint16_t* a,
                                                 const std::uint16_t* b, std::size_t count) {
  using Word = std::uint32_t __attribute__((aligned(2), may_alias));
  Word* to = reinterpret_cast<Word*>(out);  // not auto: it forgets the attributes
  const Word* left = reinterpret_cast<const Word*>(a);
  const Word* right = reinterpret_cast<const Word*>(b);
  RONDO_INDEPENDENT
  for (std::size_t i = 0; i < count / 2; ++i) {
    const std::uint32_t low = Bfloat::narrow(Op::apply(Bfloat::widen(left[i]), Bfloat::widen(right[i])));
    const std::uint32_t high = Bfloat::narrow(Op::apply(Bfloat::widen(left[i] >> 16), Bfloat::widen(right[i] >> 16)));
    to[i] = low | high << 16;
  }
  for (std::size_t i = count / 2 * 2; i < count; ++i) {
    out[i] = static_cast<std::uint16_t>(Bfloat::narrow(Op::apply(Bfloat::widen(a[i]), Bfloat::widen(b[i]))));
  }
}

template <class E, class Op>
void combine(void* out, const void* a, const void* b, std::size_t count) {
  using Stored = typename E::Stored;
  auto* to = static_cast<Stored*>(out);
  auto* left = static_cast<const Stored*>(a);
  auto* right = static_cast<const Stored*>(b);
  if constexpr (__is_same(Stored, typename E::Value)) {
    apply<Op>(to, left, right, count);
  } else if constexpr (__is_same(E, Bf16)) {
    combine_block(E{}, Op{}, to, left, right, count);
  } else {
    std::size_t first = 0;
    for (; first + kRegisters <= count; first += kRegisters) {  // of a constant length: no array is left in memory
      combine_block(E{}, Op{}, to + first, left + first, right + first, kRegisters);
    }
    combine_block(E{}, Op{}, to + first, left + first, right + first, count - first);
  }
}

// ---- scaling ----

template <class T>
void multiply_integers(T* out, const T* in, std::size_t count, double factor) {
  if (is_whole(factor)) {
    const auto whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(factor));
    RONDO_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) out[i] = multiply_whole(in[i], whole);
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = saturate<T>(static_cast<double>(in[i]) * factor);
  }
}

template <bool kDivide, class Value>
[[gnu::always_inline]] inline void scale_values(Value* out, const Value* in, std::size_t count, double factor) {
  if constexpr (kFloating<Value>) {
    const auto by = static_cast<Value>(factor);
    RONDO_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) out[i] = kDivide ? in[i] / by : in[i] * by;
  } else if constexpr (kDivide) {
    const auto by = static_cast<std::int64_t>(factor);
    if (by == 1 && out == in) return;
    for (std::size_t i = 0; i < count; ++i) out[i] = divide_whole(in[i], by);
  } else {
    multiply_integers(out, in, count, factor);
  }
}

template <class E, bool kDivide>
void scale(void* out, const void* in, std::size_t count, double factor) {
  using Stored = typename E::Stored;
  auto* to = static_cast<Stored*>(out);
  auto* from = static_cast<const Stored*>(in);
  if constexpr (__is_same(Stored, typename E::Value)) {
    scale_values<kDivide>(to, from, count, factor);
  } else {
    float x[kBlock];
    for (std::size_t first = 0; first < count; first += kBlock) {
      const std::size_t block = block_at(first, count);
      widen(E{}, x, from + first, block);
      scale_values<kDivide>(x, x, block, factor);
      narrow(E{}, to + first, x, block);
    }
  }
}

// ---- the canonical left fold ----

// Blocks accumulate beside `out`, which may be any of the inputs.
template <class E, class Op, bool kDivide>
void fold(void* out, const void* const* in, int inputs, std::size_t count, double divisor) {
  using Stored = typename E::Stored;
  using Value = typename E::Value;
  constexpr bool kPlain = __is_same(Stored, Value);
  Value sum[kBlock];
  [[maybe_unused]] Value next[kPlain ? 1 : kBlock];
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t block = block_at(first, count);
    for (int rank = 0; rank < inputs; ++rank) {
      auto* from = static_cast<const Stored*>(in[rank]) + first;
      if constexpr (kPlain) {
        if (rank == 0) {
          __builtin_memcpy(sum, from, block * sizeof(Value));
        } else {
          apply<Op>(sum, sum, from, block);
        }
      } else {
        widen(E{}, rank == 0 ? sum : next, from, block);
        if (rank != 0) apply<Op>(sum, sum, next, block);
      }
    }
    if constexpr (kDivide) scale_values<true>(sum, sum, block, divisor);
    auto* to = static_cast<Stored*>(out) + first;
    if constexpr (kPlain) {
      __builtin_memcpy(to, sum, block * sizeof(Value));
    } else {
      narrow(E{}, to, sum, block);
    }
  }
}

// ---- the table: one row per dtype; columns in the order of ReduceOp::Kind ----

template <class E>
constexpr ReduceRow row_of(DataType dtype) {
  ReduceRow row{
      dtype,
      {combine<E, Sum>, combine<E, Product>, combine<E, Min>, combine<E, Max>, combine<E, Sum>},
      {fold<E, Sum, false>, fold<E, Product, false>, fold<E, Min, false>, fold<E, Max, false>, fold<E, Sum, true>},
      scale<E, false>,
      scale<E, true>};
  row.combine[ReduceOp::premultiplied_sum] = row.combine[ReduceOp::sum];
  row.fold[ReduceOp::premultiplied_sum] = row.fold[ReduceOp::sum];
  if constexpr (!kFloating<typename E::Value>) {
    row.combine[ReduceOp::bit_and] = combine<E, And>;
    row.combine[ReduceOp::bit_or] = combine<E, Or>;
    row.combine[ReduceOp::bit_xor] = combine<E, Xor>;
    row.fold[ReduceOp::bit_and] = fold<E, And, false>;
    row.fold[ReduceOp::bit_or] = fold<E, Or, false>;
    row.fold[ReduceOp::bit_xor] = fold<E, Xor, false>;
  }
  return row;
}

constexpr ReduceTable kTable = {{
    row_of<Plain<std::int8_t>>(DataType::i8),
    row_of<Plain<std::uint8_t>>(DataType::u8),
    row_of<Plain<std::int32_t>>(DataType::i32),
    row_of<Plain<std::uint32_t>>(DataType::u32),
    row_of<Plain<std::int64_t>>(DataType::i64),
    row_of<Plain<std::uint64_t>>(DataType::u64),
    row_of<F16>(DataType::f16),
    row_of<Bf16>(DataType::bf16),
    row_of<Plain<float>>(DataType::f32),
    row_of<Plain<double>>(DataType::f64),
    row_of<Small<std::uint8_t, E4m3>>(DataType::f8e4m3),
    row_of<Small<std::uint8_t, E5m2>>(DataType::f8e5m2),
}};

}  // namespace
}  // namespace rondo::kernels
