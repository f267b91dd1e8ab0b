// SPDX-License-Identifier: Apache-2.0
// Covering arrays: few cases in which every pair of values of any two parameters occurs together.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"

namespace rondo::test {

// A new seed for every run, printed; --rng-seed N replays it.
inline std::uint32_t rotating_seed() {
  const std::uint32_t given = Catch::rngSeed();
  const std::uint32_t seed = given != 0 ? given : std::random_device{}() | 1u;
  std::printf("seed %u (replay with --rng-seed %u)\n", seed, seed);
  return seed;
}

// Parameter i takes the values 0 .. sizes[i] - 1. Greedy: each case begins with a pair not yet covered, and every
// further parameter takes the value that covers most new pairs.
class PairwiseCases {
 public:
  PairwiseCases(std::vector<int> sizes, std::uint32_t seed) : sizes_(std::move(sizes)), random_(seed) {
    for (const int size : sizes_) {
      first_.push_back(values_);
      values_ += static_cast<std::size_t>(size);
    }
    covered_.assign(values_ * values_, false);
  }

  std::vector<std::vector<int>> all() {
    std::vector<std::vector<int>> cases;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      for (std::size_t j = i + 1; j < sizes_.size(); ++j) {
        for (int a = 0; a < sizes_[i]; ++a) {
          for (int b = 0; b < sizes_[j]; ++b) {
            if (!covered(i, a, j, b)) cases.push_back(next_case(i, a, j, b));
          }
        }
      }
    }
    std::shuffle(cases.begin(), cases.end(), random_);
    return cases;
  }

 private:
  std::vector<int> next_case(std::size_t i, int a, std::size_t j, int b) {
    std::vector<int> chosen(sizes_.size(), kFree);
    chosen[i] = a;
    chosen[j] = b;
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      if (chosen[k] == kFree) chosen[k] = best_value(chosen, k);
    }
    for (std::size_t x = 0; x < sizes_.size(); ++x) {
      for (std::size_t y = 0; y < sizes_.size(); ++y) covered_[index(x, chosen[x], y, chosen[y])] = true;
    }
    return chosen;
  }

  int best_value(const std::vector<int>& chosen, std::size_t k) {
    const int start = static_cast<int>(random_() % static_cast<unsigned>(sizes_[k]));
    int best = start;
    int most = -1;
    for (int step = 0; step < sizes_[k]; ++step) {
      const int value = (start + step) % sizes_[k];
      int gain = 0;
      for (std::size_t other = 0; other < chosen.size(); ++other) {
        gain += chosen[other] != kFree && !covered(other, chosen[other], k, value);
      }
      if (gain > most) {
        most = gain;
        best = value;
      }
    }
    return best;
  }

  std::size_t index(std::size_t i, int a, std::size_t j, int b) const {
    return (first_[i] + static_cast<std::size_t>(a)) * values_ + first_[j] + static_cast<std::size_t>(b);
  }
  bool covered(std::size_t i, int a, std::size_t j, int b) const { return covered_[index(i, a, j, b)]; }

  static constexpr int kFree = -1;
  std::vector<int> sizes_;
  std::vector<std::size_t> first_;
  std::size_t values_ = 0;
  std::vector<bool> covered_;
  std::mt19937 random_;
};

}  // namespace rondo::test
