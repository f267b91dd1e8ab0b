// SPDX-License-Identifier: Apache-2.0
// Worlds on the devices under test (simulated unless told otherwise), ranks as threads, and what their tests need.
#pragma once
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <rondo/device.hpp>

#include "comm/setup/create.hpp"
#include "kernels/cuda/api.hpp"
#include "tests/support/device.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

namespace rondo::test {

inline Options on_sim(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  Options options;
  options.device = device_under_test();
  options.timeout = timeout;
  return options;
}

// What another rank's thread sets.
inline void await(const std::atomic<bool>& flag) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!flag && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  expect(flag, "the other rank has not come so far");
}

// rank, rank + 1, …: their sums over the ranks are known.
inline std::vector<std::int32_t> ramp(int rank, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), rank);
  return values;
}
inline void expect_sum_of_ramps(const std::vector<std::int32_t>& sum, int world, std::int32_t factor = 1) {
  const std::int32_t ranks = world * (world - 1) / 2;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::int32_t expected = factor * (static_cast<std::int32_t>(i) * world + ranks);
    expect(sum[i] == expected,
           "element " + std::to_string(i) + " is " + std::to_string(sum[i]) + ", not " + std::to_string(expected));
  }
}

}  // namespace rondo::test
