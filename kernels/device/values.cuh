// SPDX-License-Identifier: Apache-2.0
// Arithmetic on elements inside kernels, with the bits of kernels/reduce.hpp (NaN payloads excepted). A word W (an
// unsigned integer of 1, 2, 4 or 8 bytes, or u64x2) carries sizeof(W) / size_of(dtype) elements; dtype and operator are
// run-time values, equal for the whole block, and are looked at once per batch of words.
#pragma once
#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

#include "kernels/convert.hpp"
#include "kernels/device/seam.cuh"
#include "kernels/reduce_operators.hpp"

namespace rondo::kernels::device::inline RONDO_SEAM {

// ---- elements: how bits become what is computed in, and back ----

template <class T>
struct PlainElement {  // computed in as it is
  using Bits = typename BitsOf<T>::Type;
  using Value = T;
  static constexpr bool kSmall = false;
  RONDO_DEVICE static Value widen(std::uint64_t bits) { return __builtin_bit_cast(Value, static_cast<Bits>(bits)); }
  RONDO_DEVICE static std::uint64_t narrow(Value value) { return __builtin_bit_cast(Bits, value); }
};
template <class Format>
struct Fp8Element {  // computed in float, like the next two
  using Bits = std::uint8_t;
  using Value = float;
  static constexpr bool kSmall = true;
  RONDO_DEVICE static float widen(std::uint64_t bits) {
    return Format::widen(static_cast<std::uint32_t>(bits) & 0xffu);
  }
  RONDO_DEVICE static std::uint64_t narrow(float value) { return Format::narrow(value) & 0xffu; }
};
struct F16Element {
  using Bits = std::uint16_t;
  using Value = float;
  static constexpr bool kSmall = true;
  RONDO_DEVICE static float widen(std::uint64_t bits) { return widen_f16(static_cast<std::uint32_t>(bits) & 0xffffu); }
  RONDO_DEVICE static std::uint64_t narrow(float value) { return narrow_f16_pair(value, 0) & 0xffffu; }
  RONDO_DEVICE static std::uint32_t narrow_pair(float low, float high) { return narrow_f16_pair(low, high); }
};
struct Bf16Element {
  using Bits = std::uint16_t;
  using Value = float;
  static constexpr bool kSmall = true;
  RONDO_DEVICE static float widen(std::uint64_t bits) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
  RONDO_DEVICE static std::uint64_t narrow(float value) { return narrow_bf16_pair(value, 0) & 0xffffu; }
  RONDO_DEVICE static std::uint32_t narrow_pair(float low, float high) { return narrow_bf16_pair(low, high); }
};

struct Bf16Part : Bf16Element {  // of an average: see kBf16Part
  RONDO_DEVICE static float widen(std::uint64_t bits) { return Bf16Element::widen(bits) * kBf16Part; }
};

RONDO_DEVICE unsigned element_bytes(DataType dtype) {
  switch (dtype) {
    case DataType::i8:
    case DataType::u8:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return 1;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::i32:
    case DataType::u32:
    case DataType::f32:
      return 4;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64:
      return 8;
  }
  return 1;
}

// What a type is counts for kernels as a bit of a constant: a switch at run time costs them registers.
enum class Numbers : std::uint8_t { signed_integer, unsigned_integer, floating };
constexpr Numbers numbers_of(DataType dtype) {
  switch (dtype) {
    case DataType::i8:
    case DataType::i32:
    case DataType::i64:
      return Numbers::signed_integer;
    case DataType::u8:
    case DataType::u32:
    case DataType::u64:
      return Numbers::unsigned_integer;
    case DataType::f16:
    case DataType::bf16:
    case DataType::f32:
    case DataType::f64:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      break;
  }
  return Numbers::floating;
}
constexpr unsigned types_of(Numbers kind) {  // a bit each
  unsigned bits = 0;
  for (unsigned i = 0; i < kDataTypeCount; ++i) bits |= numbers_of(static_cast<DataType>(i)) == kind ? 1U << i : 0U;
  return bits;
}
inline constexpr unsigned kSignedTypes = types_of(Numbers::signed_integer);
inline constexpr unsigned kUnsignedTypes = types_of(Numbers::unsigned_integer);
static_assert(kUnsignedTypes == kSignedTypes << 1, "the unsigned type as long stands behind each signed one");
RONDO_DEVICE bool is_among(DataType dtype, unsigned bits) { return (bits >> static_cast<unsigned>(dtype) & 1U) != 0; }

// The unsigned type as long; of others the type itself.
RONDO_DEVICE DataType unsigned_of(DataType dtype) {
  return is_among(dtype, kSignedTypes) ? static_cast<DataType>(static_cast<unsigned>(dtype) + 1) : dtype;
}
RONDO_DEVICE bool is_integer(DataType dtype) { return is_among(dtype, kSignedTypes | kUnsignedTypes); }

// ---- the values that a word carries ----

template <class E, class W>
struct Values {
  using Value = typename E::Value;
  using Bits = typename E::Bits;
  static constexpr int kCount = static_cast<int>(sizeof(W) / sizeof(Bits));
  static_assert(kCount > 0);
  Value value[kCount];

  RONDO_DEVICE static Values of(W word) {
    Values all;
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) all.value[i] = E::widen(part(word, i));
    return all;
  }
  RONDO_DEVICE void multiply(double factor) {
    const bool whole = is_whole(factor);
    const auto by = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole ? factor : 0));
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kFloating<Value>) {
        value[i] = value[i] * static_cast<Value>(factor);
      } else if (whole) {
        value[i] = multiply_whole(value[i], by);
      } else {
        value[i] = saturate<Value>(static_cast<double>(value[i]) * factor);
      }
    }
  }
  RONDO_DEVICE void divide(double divisor) {
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kFloating<Value>) {
        value[i] = value[i] / static_cast<Value>(divisor);
      } else {
        value[i] = divide_whole(value[i], static_cast<std::int64_t>(divisor));
      }
    }
  }
  RONDO_DEVICE W bits() const {
    if constexpr (__is_same(W, u64x2)) {
      return {half(0), half(kCount / 2)};
    } else {
      return static_cast<W>(half(0));
    }
  }

 private:
  static constexpr int kPerHalf = kCount > 8 / static_cast<int>(sizeof(Bits)) ? 8 / static_cast<int>(sizeof(Bits))
                                                                              : kCount;
  // The bits of element i, and above them anything.
  RONDO_DEVICE static std::uint64_t part(W word, int i) {
    std::uint64_t bits = 0;
    if constexpr (__is_same(W, u64x2)) {
      bits = i < kPerHalf ? word.x : word.y;
      i %= kPerHalf;
    } else {
      bits = word;
    }
    if constexpr (sizeof(Bits) <= 4 && sizeof(W) >= 8) {  // registers are of 32 bits
      const int per_register = 4 / static_cast<int>(sizeof(Bits));
      const auto lower = static_cast<std::uint32_t>(i < per_register ? bits : bits >> 32);
      return lower >> (8 * static_cast<int>(sizeof(Bits)) * (i % per_register));
    } else {
      return bits >> (8 * static_cast<int>(sizeof(Bits)) * i);
    }
  }
  // At most 8 bytes of elements, from `first` on.
  RONDO_DEVICE std::uint64_t half(int first) const {
    if constexpr (sizeof(Bits) == 8) {
      return E::narrow(value[first]);
    } else if constexpr (sizeof(Bits) * kPerHalf == 8) {
      return quarter(first) | static_cast<std::uint64_t>(quarter(first + kPerHalf / 2)) << 32;
    } else {
      std::uint64_t all = 0;
      RONDO_UNROLL
      for (int i = 0; i < kPerHalf; ++i) all |= E::narrow(value[first + i]) << (8 * static_cast<int>(sizeof(Bits)) * i);
      return all;
    }
  }
  RONDO_DEVICE std::uint32_t quarter(int first) const {  // 4 bytes
    if constexpr (E::kSmall && sizeof(Bits) == 2) {
      return E::narrow_pair(value[first], value[first + 1]);
    } else {
      std::uint32_t all = 0;
      RONDO_UNROLL
      for (int i = 0; i < 4 / static_cast<int>(sizeof(Bits)); ++i) {
        all |= static_cast<std::uint32_t>(E::narrow(value[first + i])) << (8 * static_cast<int>(sizeof(Bits)) * i);
      }
      return all;
    }
  }
};

// The left fold of words, in the order they come in; small types in float, rounded once. Keep one in registers.
template <class E, class Op, class W>
class Accumulator {
 public:
  RONDO_DEVICE void start(W word, float part = 1) { sum_ = parts_of(word, part); }
  RONDO_DEVICE void add(W word, float part = 1) {
    const auto next = parts_of(word, part);
    RONDO_UNROLL
    for (int i = 0; i < Values<E, W>::kCount; ++i) sum_.value[i] = Op::apply(sum_.value[i], next.value[i]);
  }
  RONDO_DEVICE void divide(double divisor) {  // average: before the rounding
    if constexpr (__is_same(E, Bf16Part)) divisor *= double{kBf16Part};
    sum_.divide(divisor);
  }
  RONDO_DEVICE W bits() const { return sum_.bits(); }

 private:
  // Of a bf16 a part may be added, see kBf16Part; others come as they are.
  RONDO_DEVICE static Values<E, W> parts_of(W word, [[maybe_unused]] float part) {
    auto values = Values<E, W>::of(word);
    if constexpr (__is_same(E, Bf16Element) && __is_same(Op, Sum)) {
      RONDO_UNROLL
      for (int i = 0; i < Values<E, W>::kCount; ++i) values.value[i] *= part;
    }
    return values;
  }
  Values<E, W> sum_;
};

// a op b, rounded: what a ring does at each step.
template <class E, class Op, class W>
RONDO_DEVICE W combine(W a, W b) {
  Accumulator<E, Op, W> sum;
  sum.start(a);
  sum.add(b);
  return sum.bits();
}

// ---- dtype and operator as run-time values ----

// f(E{}) for the element type of `dtype`.
template <class F>
RONDO_DEVICE void with_element(DataType dtype, F&& f) {
#ifdef RONDO_STAMPS  // measures f32 alone; all of them take the compiler minutes
  if (dtype == DataType::f32) f(PlainElement<float>{});
#else
  switch (dtype) {
    case DataType::i8:
      return f(PlainElement<std::int8_t>{});
    case DataType::u8:
      return f(PlainElement<std::uint8_t>{});
    case DataType::i32:
      return f(PlainElement<std::int32_t>{});
    case DataType::u32:
      return f(PlainElement<std::uint32_t>{});
    case DataType::i64:
      return f(PlainElement<std::int64_t>{});
    case DataType::u64:
      return f(PlainElement<std::uint64_t>{});
    case DataType::f16:
      return f(F16Element{});
    case DataType::bf16:
      return f(Bf16Element{});
    case DataType::f32:
      return f(PlainElement<float>{});
    case DataType::f64:
      return f(PlainElement<double>{});
    case DataType::f8e4m3:
      return f(Fp8Element<E4m3>{});
    case DataType::f8e5m2:
      return f(Fp8Element<E5m2>{});
  }
#endif
}

// The operators' first and last touch of a word: premultiplied_sum multiplies, average divides. Rounded to the dtype.
template <class W>
RONDO_DEVICE_CALL W multiply(DataType dtype, W word, double factor) {
  with_element(dtype, [&](auto element) {
    using E = decltype(element);
    if constexpr (sizeof(typename E::Bits) <= sizeof(W)) {
      auto values = Values<E, W>::of(word);
      values.multiply(factor);
      word = values.bits();
    }
  });
  return word;
}
template <class W>
RONDO_DEVICE_CALL W divide(DataType dtype, W word, double divisor) {
  with_element(dtype, [&](auto element) {
    using E = decltype(element);
    if constexpr (sizeof(typename E::Bits) <= sizeof(W)) {
      auto values = Values<E, W>::of(word);
      values.divide(divisor);
      word = values.bits();
    }
  });
  return word;
}

// f(E{}, Op{}). average and premultiplied_sum give Sum: their first and last touch are the caller's. Signed integers
// come as unsigned ones where that makes no difference.
template <class F>
RONDO_DEVICE void with_element(DataType dtype, ReduceOp::Kind op, F&& f) {
  const auto integer = [&](auto element) {
    using E = decltype(element);
    using U = PlainElement<typename E::Bits>;
    constexpr bool kSigned = !__is_same(E, U);
    if (op == ReduceOp::min) return f(E{}, Min{});
    if (op == ReduceOp::max) return f(E{}, Max{});
    if constexpr (kSigned) {
      f(E{}, Sum{});
    } else {
      if (op == ReduceOp::product) return f(U{}, Product{});
      if (op == ReduceOp::bit_and) return f(U{}, And{});
      if (op == ReduceOp::bit_or) return f(U{}, Or{});
      if (op == ReduceOp::bit_xor) return f(U{}, Xor{});
      f(U{}, Sum{});
    }
  };
  const auto keeps_sign = op == ReduceOp::min || op == ReduceOp::max || op == ReduceOp::average;
  with_element(keeps_sign ? dtype : unsigned_of(dtype), [&](auto element) {
    using E = decltype(element);
    if constexpr (!kFloating<typename E::Value>) {
      integer(element);
    } else {
      if (op == ReduceOp::min) return f(E{}, Min{});
      if (op == ReduceOp::max) return f(E{}, Max{});
      if (op == ReduceOp::product) return f(E{}, Product{});
      f(E{}, Sum{});
    }
  });
}

// The same for a fold of all inputs, which `divides` their sum before it is rounded.
template <class F>
RONDO_DEVICE void with_element(DataType dtype, ReduceOp::Kind op, bool divides, F&& f) {
  if (dtype == DataType::bf16 && divides) return f(Bf16Part{}, Sum{});
  with_element(dtype, op, f);
}

// ---- averages of integers: what would wrap is added up in lanes of twice the width ----

// Those of 64 bits wrap.
RONDO_DEVICE bool widens(DataType dtype) { return is_integer(dtype) && element_bytes(dtype) < 8; }

struct LaneShape {  // of a word of 8 bytes
  unsigned bits;    // of an element; a lane has twice as many
  std::uint64_t mask;
  std::uint64_t bias;  // added to every signed element, so that none is negative
  RONDO_DEVICE explicit LaneShape(DataType dtype)
      : bits(8 * element_bytes(dtype)),
        mask(bits == 8    ? 0x00ff00ff00ff00ffu
             : bits == 16 ? 0x0000ffff0000ffffu
                          : 0x00000000ffffffffu),
        bias(!is_among(dtype, kSignedTypes) ? 0
             : bits == 8                    ? 0x8080808080808080u
             : bits == 16                   ? 0x8000800080008000u
                                            : 0x8000000080000000u) {}
};

// Of the inputs of up to 64 ranks, so lanes of 16 bits hold the sums of bytes.
struct LaneSums {
  static_assert(kMaxRanks <= 256);
  std::uint64_t even = 0, odd = 0;
  RONDO_DEVICE void add(const LaneShape& shape, std::uint64_t word) {
    word ^= shape.bias;
    even += word & shape.mask;
    odd += word >> shape.bits & shape.mask;
  }
};

// Of its arguments nothing is in memory, which the caller would need stack for.
RONDO_DEVICE_CALL std::uint64_t divide_lanes(std::uint64_t even, std::uint64_t odd, unsigned bits, std::uint64_t bias,
                                             std::int64_t divisor) {
  const std::uint64_t lane = ~std::uint64_t{0} >> (64 - 2 * bits), element = lane >> bits;
  const std::int64_t added = divisor * static_cast<std::int64_t>(bias & element);
  const auto quotient = [&](std::uint64_t sum) {
    return static_cast<std::uint64_t>((static_cast<std::int64_t>(sum & lane) - added) / divisor) & element;
  };
  std::uint64_t word = 0;
  RONDO_NO_UNROLL
  for (unsigned at = 0; at < 64; at += 2 * bits) {
    word |= quotient(even >> at) << at | quotient(odd >> at) << (at + bits);
  }
  return word;
}

// The average of `inputs` words, in the order they come in.
template <class W, class F>
RONDO_DEVICE W average_words(DataType dtype, int inputs, F&& word_of) {
  const LaneShape shape(dtype);
  LaneSums low, high;
  RONDO_NO_UNROLL
  for (int i = 0; i < inputs; ++i) {
    const W word = word_of(i);
    if constexpr (__is_same(W, u64x2)) {
      low.add(shape, word.x);
      high.add(shape, word.y);
    } else {
      low.add(shape, word);
    }
  }
  if constexpr (__is_same(W, u64x2)) {
    return {divide_lanes(low.even, low.odd, shape.bits, shape.bias, inputs),
            divide_lanes(high.even, high.odd, shape.bits, shape.bias, inputs)};
  } else {
    return static_cast<W>(divide_lanes(low.even, low.odd, shape.bits, shape.bias, inputs));
  }
}

// a[i] = a[i] op b[i], rounded, for words in registers.
template <int kWords, class W>
RONDO_DEVICE void combine(DataType dtype, ReduceOp::Kind op, W (&a)[kWords], const W (&b)[kWords]) {
  with_element(dtype, op, [&](auto element, auto by) {
    using E = decltype(element);
    if constexpr (sizeof(typename E::Bits) <= sizeof(W)) {
      RONDO_UNROLL
      for (int i = 0; i < kWords; ++i) a[i] = combine<E, decltype(by)>(a[i], b[i]);
    }
  });
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
