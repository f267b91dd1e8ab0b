// SPDX-License-Identifier: Apache-2.0
// What tests of messages send, and between whom.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <vector>

#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {

constexpr std::size_t kShort = 3, kWhole = 4000, kLong = 300'000;  // of int: travels whole, just so, and not

inline std::vector<int> numbers(std::size_t count, int seed) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), seed);
  return all;
}

inline void on_world(Kind kind, int size, const Body& body, Options options = {}) {
  options.timeout = std::min(options.timeout, std::chrono::milliseconds(std::chrono::seconds(60)));
  rethrow(run_world(kind, size, options, body));
}

inline Kind any_kind() { return GENERATE(Kind::local, Kind::shm, Kind::tcp, Kind::queue); }

}  // namespace rondo::test
