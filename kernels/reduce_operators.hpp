// SPDX-License-Identifier: Apache-2.0
// The operators of the reduction loops, on numbers and on vectors, and of the device kernels (constexpr, so that nvcc
// takes them too). Commutative bit for bit (NaN payloads excepted), since two ranks may combine the same pair in either
// order. Internal linkage: see kernels/reduce_loops.hpp.
#pragma once
#include <cstdint>
#include <type_traits>

namespace rondo::kernels {
namespace {

template <class T>
constexpr bool kFloating = __is_same(T, float) || __is_same(T, double);

template <class T>
struct BitsOf {  // integers wrap around, so they are added and multiplied unsigned
  using Type = std::make_unsigned_t<T>;
};
template <>
struct BitsOf<float> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<double> {
  using Type = std::uint64_t;
};

struct Sum {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    if constexpr (kFloating<T>) {
      return a + b;
    } else {
      using Bits = typename BitsOf<T>::Type;
      return (T)((Bits)a + (Bits)b);  // of vectors a change of name
    }
  }
};
struct Product {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    if constexpr (kFloating<T>) {
      return a * b;
    } else {
      using Bits = typename BitsOf<T>::Type;
      return (T)((Bits)a * (Bits)b);
    }
  }
};
// -0 is less than +0, and a NaN on either side wins.
template <bool kLess>
struct Extreme {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    const T picked = (kLess ? a < b : b < a) ? a : b;
    if constexpr (kFloating<T>) {
      using Bits = typename BitsOf<T>::Type;
      const Bits left = __builtin_bit_cast(Bits, a);
      const Bits right = __builtin_bit_cast(Bits, b);
      const Bits equal = kLess ? left | right : left & right;
      const T ordered = a == b ? __builtin_bit_cast(T, equal) : picked;
      return a != a ? a : ordered;  // where b alone is a NaN, the comparison picked it
    } else {
      return picked;
    }
  }
};
using Min = Extreme<true>;
using Max = Extreme<false>;
struct And {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// What a bf16 is multiplied by on its way into an average, and the divisor with it: 65536 of the largest add up to less
// than a float's, and 2^-16 of the smallest, 2^-133, is the smallest float.
constexpr float kBf16Part = 0x1p-16f;

// ---- scaling of integers ----

template <class T>
[[gnu::always_inline]] constexpr T saturate(double value) {  // towards zero; NaN becomes 0
  constexpr T kLowest = T(-1) < T(0) ? static_cast<T>(std::uint64_t{1} << (8 * sizeof(T) - 1)) : T(0);
  constexpr T kHighest = static_cast<T>(~kLowest);
  // Exact, a power of two. NOLINTNEXTLINE(bugprone-integer-division)
  constexpr double kLimit = 2.0 * static_cast<double>(kHighest / 2 + 1);
  if (!(value < kLimit)) return value >= kLimit ? kHighest : T(0);
  return value <= static_cast<double>(kLowest) ? kLowest : static_cast<T>(value);
}

// A whole factor multiplies integers exactly (wrapping); any other goes through double.
[[gnu::always_inline]] constexpr bool is_whole(double factor) {
  return factor >= -0x1p62 && factor <= 0x1p62 && factor == static_cast<double>(static_cast<std::int64_t>(factor));
}
template <class T>
[[gnu::always_inline]] constexpr T multiply_whole(T value, std::uint64_t factor) {
  return static_cast<T>(static_cast<std::uint64_t>(value) * factor);
}
template <class T>
[[gnu::always_inline]] constexpr T divide_whole(T value, std::int64_t by) {  // by a number of ranks: 1 or more
  if constexpr (sizeof(T) >= 4) {
    return value / static_cast<T>(by);
  } else {
    return static_cast<T>(static_cast<std::int64_t>(value) / by);
  }
}

}  // namespace
}  // namespace rondo::kernels
