// SPDX-License-Identifier: Apache-2.0
// Inputs whose reductions are exact in every dtype and every order, so the result has one right value.
#pragma once
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "step.hpp"

namespace consumer {

template <class T>
inline constexpr bool is_small_float = std::is_class_v<T>;  // float16, bfloat16, fp8: storage types
template <class T>
inline constexpr bool is_fp8 = is_small_float<T> && sizeof(T) == 1;

template <class T>
T from_double(double value) {
  if constexpr (is_small_float<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
double to_double(T value) {
  if constexpr (is_small_float<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T any_bits(std::uint64_t hash) {
  T value;
  std::memcpy(static_cast<void*>(&value), &hash, sizeof value);
  return value;
}

// Sums of nine stay below 2^3 in fp8, below 2^7 elsewhere; at most five ranks contribute to an fp8 sum or a product.
template <class T>
T reducible(const Step& step, int rank, std::uint64_t hash) {
  const bool is_signed = std::is_signed_v<T> || is_small_float<T>;
  const bool quiet = rank % 2 == 1;
  switch (step.op.kind()) {
    case rondo::ReduceOp::bit_and:
    case rondo::ReduceOp::bit_or:
    case rondo::ReduceOp::bit_xor:
      return any_bits<T>(hash);
    case rondo::ReduceOp::product:
      return from_double<T>(quiet || hash % 2 == 0 ? 1 : 2);
    case rondo::ReduceOp::min:
    case rondo::ReduceOp::max:
      return from_double<T>(static_cast<double>(hash % 8) - (is_signed ? 4 : 0));
    default:
      if (is_fp8<T>) return from_double<T>(quiet ? 0 : static_cast<double>(hash % 2));
      return from_double<T>(static_cast<double>(hash % 6) - (is_signed ? 3 : 0));
  }
}

inline bool reduces(rondo::Collective collective) { return rondo::row_of(collective).reduces; }

// premul_sum: every rank has its own factor.
inline double factor_of(int rank, rondo::DataType dtype) {
  const bool is_unsigned =
      dtype == rondo::DataType::u8 || dtype == rondo::DataType::u32 || dtype == rondo::DataType::u64;
  return rank % 2 == 0 || is_unsigned ? 1.0 : -2.0;
}

template <class T>
std::vector<T> input_of(const Step& step, int rank, std::size_t count) {
  std::vector<T> values(count);
  std::uint64_t hash = mix(step.seed + static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15ULL);
  for (std::size_t i = 0; i < count; ++i) {
    hash = mix(hash + i);
    if (!reduces(step.collective)) {
      values[i] = any_bits<T>(hash);
    } else if (step.rough) {
      values[i] = from_double<T>(static_cast<double>(hash >> 11) / 9007199254740992.0 - 0.5);
    } else {
      values[i] = reducible<T>(step, rank, hash);
    }
  }
  return values;
}

}  // namespace consumer
