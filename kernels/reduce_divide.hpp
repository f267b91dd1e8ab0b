// SPDX-License-Identifier: Apache-2.0
// Division of numbers and vectors by a number of ranks; of floats by a power of two, which rounds like the product with
// its inverse, and of integers by multiplication, since hardly any processor divides vectors of them: Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994. Internal linkage: see
// kernels/reduce_loops.hpp.
#pragma once
#include "kernels/reduce_vectors.hpp"

namespace rondo::kernels {
namespace {

struct Divisor {  // 2 or more, if of integers
  double value;
  double inverse;  // of a power of two; otherwise 0
  // Of integers of N bits: v / divisor == (v * multiplier >> N) + v >> shift, the sum without overflow.
  std::uint64_t multiplier;
  int shift;

  template <class Value>
  static Divisor of(double value) {
    if constexpr (kFloating<Value>) {
      const bool is_power = __builtin_bit_cast(std::uint64_t, value) << 12 == 0;  // no bit of the fraction is set
      return {value, is_power ? 1 / value : 0, 0, 0};
    } else {
      using Wide = unsigned __int128;
      const auto by = static_cast<std::uint64_t>(value);
      const int shift = by < 2 ? 0 : 64 - __builtin_clzll(by - 1);  // 2 ^ shift >= by
      const Wide numerator = ((Wide{1} << shift) - by) << (8 * sizeof(Value));
      return {value, 0, static_cast<std::uint64_t>(numerator / by + 1), shift};
    }
  }

  template <class Value>
  [[gnu::always_inline]] Value divide(Value number) const {
    if constexpr (IsVector<Value>) {
      return divide_vector(number);
    } else if constexpr (kFloating<Value>) {
      return number / static_cast<Value>(value);
    } else {
      return divide_whole(number, static_cast<std::int64_t>(value));
    }
  }

 private:
  template <class V>
  [[gnu::always_inline]] V divide_vector(V number) const {
    if constexpr (kFloating<V>) {
      if (inverse != 0) return number * static_cast<Lane<V>>(inverse);
      return number / static_cast<Lane<V>>(value);
    } else if constexpr (Lane<V>(-1) < Lane<V>(0)) {
      using Bits = typename BitsOf<V>::Type;
      const auto sign = (Bits)(number >> (8 * sizeof(Lane<V>) - 1));  // all ones where negative
      return (V)((divide_unsigned(((Bits)number ^ sign) - sign) ^ sign) - sign);
    } else {
      return divide_unsigned(number);
    }
  }

  // Lanes of twice the width hold the product: the numbers at even places, then those at odd ones.
  template <class V>
  [[gnu::always_inline]] V divide_unsigned(V number) const {
    constexpr int kBits = 8 * sizeof(Lane<V>);
    if constexpr (kBits == 64) {
      for (unsigned i = 0; i < sizeof(V) / 8; ++i) number[i] = divide_64(number[i]);
      return number;
    } else {
      constexpr int kLaneBits = kBits == 8 ? 32 : 64;  // a product of bytes and its sum need more than 16
      using Wide = Vector<std::conditional_t<kBits == 8, std::uint32_t, std::uint64_t>, sizeof(V)>;
      constexpr auto kMask = static_cast<Lane<Wide>>(static_cast<Lane<V>>(-1));
      const auto by = static_cast<Lane<Wide>>(multiplier);
      Wide quotients{};
      for (int at = 0; at < kLaneBits; at += kBits) {
        const Wide part = ((Wide)number >> at) & kMask;
        quotients |= (((part * by) >> kBits) + part) >> shift << at;
      }
      return (V)quotients;
    }
  }
  [[gnu::always_inline]] std::uint64_t divide_64(std::uint64_t number) const {
    const auto high = static_cast<std::uint64_t>((static_cast<unsigned __int128>(number) * multiplier) >> 64);
    return (((number - high) >> 1) + high) >> (shift - 1);
  }
};

}  // namespace
}  // namespace rondo::kernels
