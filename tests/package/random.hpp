// SPDX-License-Identifier: Apache-2.0
// The same numbers from the same seed on every rank and every platform (splitmix64).
#pragma once
#include <cstddef>
#include <cstdint>

namespace consumer {

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  int index(int bound) { return static_cast<int>(below(static_cast<std::size_t>(bound))); }
  bool chance(int percent) { return index(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace consumer
