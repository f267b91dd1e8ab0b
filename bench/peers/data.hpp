// SPDX-License-Identifier: Apache-2.0
// Inputs whose every sum is exact: hashed integers as floats, never zeros (memory full of zeros is written faster
// here).
#pragma once
#include <algorithm>
#include <cstdint>

#include "collective.hpp"

namespace rondo::peers {

constexpr float kPoison = -12345.0F;

// In [-32, 31]; sums over up to 2^18 ranks are exact in float, in any order.
inline std::int32_t value(std::size_t index, int rank, std::uint32_t seed) {
  auto x = static_cast<std::uint32_t>(index) * 0x9E3779B1U + static_cast<std::uint32_t>(rank) * 0x85EBCA6BU +
           seed * 0xC2B2AE35U;
  x ^= x >> 15U;
  x *= 0x2C1B3C6DU;
  return static_cast<std::int32_t>(x >> 26U) - 32;
}

inline void fill(float* to, std::size_t count, std::size_t first, int rank, std::uint32_t seed) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(value(first + i, rank, seed));
}

inline bool holds(const float* got, std::size_t count, std::size_t first, int rank, std::uint32_t seed) {
  bool wrong = false;
  for (std::size_t i = 0; i < count; ++i) wrong |= got[i] != static_cast<float>(value(first + i, rank, seed));
  return !wrong;
}

inline bool holds_sum(const float* got, std::size_t count, std::size_t first, int np, std::uint32_t seed) {
  constexpr std::size_t kStrip = 1024;
  std::int32_t sum[kStrip];
  bool wrong = false;
  for (std::size_t begin = 0; begin < count; begin += kStrip) {
    const std::size_t strip = std::min(kStrip, count - begin);
    std::fill_n(sum, strip, 0);
    for (int rank = 0; rank < np; ++rank)
      for (std::size_t i = 0; i < strip; ++i) sum[i] += value(first + begin + i, rank, seed);
    for (std::size_t i = 0; i < strip; ++i) wrong |= got[begin + i] != static_cast<float>(sum[i]);
  }
  return !wrong;
}

inline void load(const Cell& cell, float* in, float* out, std::uint32_t seed) {
  std::fill_n(out, cell.count, kPoison);
  float* to = cell.is(Collective::broadcast) ? out : in;
  fill(to, cell.input(), 0, cell.rank, seed);
}

inline bool is_right(const Cell& cell, const float* got, std::uint32_t seed) {
  const std::size_t mine = cell.own_offset(), count = cell.output();
  if (cell.reduces()) return holds_sum(got, count, cell.is(Collective::reduce_scatter) ? mine : 0, cell.np, seed);
  if (cell.is(Collective::broadcast)) return holds(got, count, 0, 0, seed);
  if (cell.from_root()) return holds(got, count, mine, 0, seed);
  bool right = true;
  for (int from = 0; from < cell.np && count > 0; ++from) {
    const std::size_t block = !cell.is_variable()                 ? cell.block()
                              : cell.is(Collective::all_to_all_v) ? cell.between(from, cell.rank)
                                                                  : cell.block_of(from);
    std::size_t first = cell.is(Collective::all_to_all) ? mine : 0;
    for (int to = 0; cell.is(Collective::all_to_all_v) && to < cell.rank; ++to) first += cell.between(from, to);
    right &= holds(got, block, first, from, seed);
    got += block;
  }
  return right;
}

}  // namespace rondo::peers
