// SPDX-License-Identifier: Apache-2.0
// Bits of the small floating types to float and back: branch-free, so that loops over them vectorise, and always
// inlined, so that each instruction set gets its own. Rounding is to nearest even in the default rounding mode.
// Overflow becomes infinity, or NaN in e4m3, which has no infinity; NaNs stay NaNs and become quiet on the way down.
// Word is 32 bits, of which the lowest hold the small value, or a vector of such words (kernels/reduce_vectors.hpp).
#pragma once
#include <cstdint>

namespace rondo::kernels {

template <class Word>
struct FloatOf;  // and the signed integers; of as many lanes
template <>
struct FloatOf<std::uint32_t> {
  using Type = float;
  using Signed = std::int32_t;
};
template <class Float>
struct WordOf;
template <>
struct WordOf<float> {
  using Type = std::uint32_t;
};

// A small format with subnormals and a narrower exponent than float's.
template <int kExponentBits, int kMantissaBits, bool kInfinity>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kTopExponent = ((1u << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::uint32_t kMinNormal = 1u << kMantissaBits;
  static constexpr std::uint32_t kNan = kInfinity ? kTopExponent | kMinNormal >> 1 : kSign - 1;
  static constexpr std::uint32_t kOverflow = kInfinity ? kTopExponent : kNan;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  // A power of two whose last place is the smallest subnormal: adding it makes the adder shift and round.
  static constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(127 + 24 - kBias - kMantissaBits) << 23;

  template <class Word>
  [[gnu::always_inline]] static constexpr auto widen(Word bits) {
    using Float = typename FloatOf<Word>::Type;
    using Signed = typename FloatOf<Word>::Signed;  // compares well in every instruction set
    const Word magnitude = bits & (kSign - 1);
    const Word normal = (magnitude << kShift) + kRebias;
    const Word subnormal =
        __builtin_bit_cast(Word, __builtin_bit_cast(Float, magnitude | kMagic) - __builtin_bit_cast(float, kMagic));
    const Word special = kInfinity ? normal + kRebias : Word{} + 0x7fc00000u;
    Word result = (Signed)magnitude < static_cast<std::int32_t>(kMinNormal) ? subnormal : normal;
    result = (Signed)magnitude >= static_cast<std::int32_t>(kInfinity ? kTopExponent : kNan) ? special : result;
    return __builtin_bit_cast(Float, result | (bits & kSign) << (31 - kExponentBits - kMantissaBits));
  }

  template <class Float>
  [[gnu::always_inline]] static constexpr auto narrow(Float value) {
    using Word = typename WordOf<Float>::Type;
    using Signed = typename FloatOf<Word>::Signed;
    const Word bits = __builtin_bit_cast(Word, value);
    const Word magnitude = bits & 0x7fffffffu;
    const Word odd = (magnitude >> kShift) & 1u;
    const Word normal = (magnitude + odd + ((1u << (kShift - 1)) - 1 - kRebias)) >> kShift;
    const Float shifted = __builtin_bit_cast(Float, magnitude) + __builtin_bit_cast(float, kMagic);
    const Word subnormal = __builtin_bit_cast(Word, shifted) - kMagic;
    Word result = (Signed)magnitude < static_cast<std::int32_t>(kRebias + (1u << 23)) ? subnormal : normal;
    result = (Signed)result < static_cast<std::int32_t>(kOverflow) ? result : Word{} + kOverflow;  // in e4m3 NaN, too
    if constexpr (kInfinity) result = (Signed)magnitude > 0x7f800000 ? Word{} + kNan : result;
    return result | ((bits >> (31 - kExponentBits - kMantissaBits)) & kSign);
  }
  template <class Float>
  [[gnu::always_inline]] static constexpr auto narrow_result(Float value) {
    return narrow(value);
  }
};

using Half = SmallFloat<5, 10, true>;
using E5m2 = SmallFloat<5, 2, true>;
using E4m3 = SmallFloat<4, 3, false>;

struct Bfloat {  // the upper half of a float
  template <class Word>
  [[gnu::always_inline]] static constexpr auto widen(Word bits) {
    return __builtin_bit_cast(typename FloatOf<Word>::Type, bits << 16);
  }
  template <class Float>
  [[gnu::always_inline]] static constexpr auto narrow(Float value) {
    using Word = typename WordOf<Float>::Type;
    const Word quiet = __builtin_bit_cast(Word, value) | 0x400000u;
    return value != value ? quiet >> 16 : narrow_result(value);
  }
  // Of what comes of widened values: a NaN's lower half is zero, so that rounding leaves it alone.
  template <class Float>
  [[gnu::always_inline]] static constexpr auto narrow_result(Float value) {
    using Word = typename WordOf<Float>::Type;
    const Word bits = __builtin_bit_cast(Word, value);
    return (bits + (((bits >> 16) & 1u) + 0x7fffu)) >> 16;
  }
};

}  // namespace rondo::kernels
