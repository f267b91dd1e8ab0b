// SPDX-License-Identifier: Apache-2.0
// Bits of the small floating types to float and back: branch-free, so that loops over them vectorise, and always
// inlined, so that each instruction set gets its own. Rounding is to nearest even in the default rounding mode.
// Overflow becomes infinity, or NaN in e4m3, which has no infinity; NaNs stay NaNs and become quiet on the way down.
#pragma once
#include <cstdint>

namespace rondo::kernels {

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

  [[gnu::always_inline]] static constexpr float widen(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & (kSign - 1);
    const std::uint32_t normal = (magnitude << kShift) + kRebias;
    const std::uint32_t subnormal = __builtin_bit_cast(
        std::uint32_t, __builtin_bit_cast(float, kMagic | magnitude) - __builtin_bit_cast(float, kMagic));
    const std::uint32_t special = kInfinity ? normal + kRebias : 0x7fc00000u;
    std::uint32_t result = magnitude < kMinNormal ? subnormal : normal;
    result = magnitude >= (kInfinity ? kTopExponent : kNan) ? special : result;
    return __builtin_bit_cast(float, result | (bits & kSign) << (31 - kExponentBits - kMantissaBits));
  }

  [[gnu::always_inline]] static constexpr std::uint32_t narrow(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t halfway = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1u);
    const std::uint32_t normal = (magnitude - kRebias + halfway) >> kShift;
    const float shifted = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kMagic);
    const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - kMagic;
    std::uint32_t result = magnitude < kRebias + (1u << 23) ? subnormal : normal;
    // Above the largest finite value after rounding; an unsigned compare also takes in infinity and NaN.
    result =
        magnitude >= kRebias + (kOverflow << kShift) - (kInfinity ? halfway_up() : halfway_even()) ? kOverflow : result;
    const std::uint32_t payload = kInfinity ? (magnitude >> kShift) & (kMinNormal - 1) : 0;
    result = magnitude > 0x7f800000u ? kNan | payload : result;
    return result | (bits >> (31 - kExponentBits - kMantissaBits) & kSign);
  }

 private:
  // With infinity the largest finite value is odd: its halfway point rounds up. e4m3's (448) is even: it rounds down.
  static constexpr std::uint32_t halfway_up() { return 1u << (kShift - 1); }
  static constexpr std::uint32_t halfway_even() { return (1u << (kShift - 1)) - 1; }
};

using Half = SmallFloat<5, 10, true>;
using E5m2 = SmallFloat<5, 2, true>;
using E4m3 = SmallFloat<4, 3, false>;

struct Bfloat {  // the upper half of a float
  [[gnu::always_inline]] static constexpr float widen(std::uint32_t bits) {
    return __builtin_bit_cast(float, bits << 16);
  }
  [[gnu::always_inline]] static constexpr std::uint32_t narrow(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded;
  }
};

}  // namespace rondo::kernels
