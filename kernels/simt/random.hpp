// SPDX-License-Identifier: Apache-2.0
// xoroshiro128+ (Blackman, Vigna), seeded by splitmix64. Small, and the same everywhere.
#pragma once
#include <cstdint>

namespace rondo::simt {

class Random {
 public:
  explicit Random(std::uint64_t seed) {
    std::uint64_t state = seed * kGolden + 0x1234567;
    for (std::uint64_t& word : words_) {
      state += kGolden;
      std::uint64_t mixed = state;
      mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
      word = mixed ^ (mixed >> 31);
    }
  }
  std::uint64_t bits() {
    const std::uint64_t a = words_[0];
    const std::uint64_t b = words_[1] ^ a;
    const std::uint64_t result = words_[0] + words_[1];
    words_[0] = rotate(a, 24) ^ b ^ (b << 16);
    words_[1] = rotate(b, 37);
    return result;
  }
  std::uint64_t below(std::uint64_t bound) { return static_cast<std::uint64_t>((Wide{bits()} * bound) >> 64); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
  static std::uint64_t rotate(std::uint64_t value, unsigned by) { return (value << by) | (value >> (64 - by)); }
  std::uint64_t words_[2];
};

}  // namespace rondo::simt
