// SPDX-License-Identifier: Apache-2.0
// Every row of kWindowAlgorithms against the host's canonical results, bit for bit: all pairs of parameters by default,
// [.full] their product.
#include "tests/kernels/device/window_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 3, 15, 17, 260, 1000};
constexpr int kThreads[] = {32, 64, 96};
constexpr std::size_t kMisalignments[] = {0, 1, 2, 5};
constexpr std::size_t kStaging[] = {0, 16384};

const std::vector<int> kSizes = {kernels::kWindowAlgorithmCount,
                                 kDataTypeCount,
                                 kReduceOpCount,
                                 8,
                                 std::size(kCounts),
                                 std::size(kMisalignments),
                                 2,
                                 kWindowsCount,
                                 3,
                                 3,
                                 std::size(kStaging),
                                 3,
                                 2,
                                 std::size(kThreads)};

WindowCase case_of(const std::vector<int>& v) {
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
  WindowCase c;
  c.row = v[0];
  c.call = {.dtype = static_cast<DataType>(v[1]),
            .op = static_cast<ReduceOp::Kind>(v[2]),
            .ranks = v[3] + 1,
            .count = kCounts[at(4)],
            .misalignment = kMisalignments[at(5)],
            .in_place = v[6] != 0,
            .channels = v[8] + 1,
            .root = v[11] * v[3] / 2,
            .variable_counts = v[12] != 0,
            .threads = kThreads[at(13)]};
  c.windows = static_cast<Windows>(v[7]);
  c.blocks = v[9] + 1;
  c.staging_bytes = kStaging[at(10)];
  return c;
}

TEST_CASE("all pairs of parameters of window collectives") {
  const std::uint32_t seed = rotating_seed();
  int runs = 0;
  for (const auto& values : PairwiseCases(kSizes, seed).all()) {
    ++runs;
    const std::string wrong = run_case(sensible(case_of(values)), seed);
    if (!wrong.empty()) FAIL(wrong);
  }
  CHECK(runs > 100);
}

TEST_CASE("window collectives with every rank on a thread of its own") {
  const std::uint32_t seed = rotating_seed();
  for (int row = 0; row < kernels::kWindowAlgorithmCount; ++row) {
    for (int windows = 0; windows < kWindowsCount; ++windows) {
      WindowCase c{.row = row, .call = {.ranks = 2 + row % 3, .count = 500, .channels = 2, .threads = 32}};
      c.call.on_threads = true;
      c.windows = static_cast<Windows>(windows);
      c.blocks = 2;
      const std::string wrong = run_case(sensible(c), seed);
      if (!wrong.empty()) FAIL(wrong);
    }
  }
}

// A column's sources do not end where a batch of loads does.
TEST_CASE("window reductions of many ranks, every dtype and operator") {
  const std::uint32_t seed = rotating_seed();
  for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      WindowCase c{.row = (dtype + op) % 3,  // one_shot, two_shot, reduce
                   .call = {.dtype = static_cast<DataType>(dtype),
                            .op = static_cast<ReduceOp::Kind>(op),
                            .ranks = 9 + (dtype + op) % 5,
                            .count = 4000 / size_of(static_cast<DataType>(dtype)),
                            .misalignment = op % 2 == 0 ? 0u : 2u,
                            .threads = 32}};
      c.windows = static_cast<Windows>((dtype + 2 * op) % 2);
      if (!is_supported(c.call.dtype, c.call.op)) continue;
      const std::string wrong = run_case(sensible(c), seed, 1);
      if (!wrong.empty()) FAIL(wrong);
    }
  }
}

TEST_CASE("the full product of window collectives", "[.full]") {
  const std::uint32_t seed = rotating_seed();
  std::vector<int> values(kSizes.size());
  for (;;) {
    const std::string wrong = run_case(sensible(case_of(values)), seed, 1);
    if (!wrong.empty()) FAIL(wrong);
    std::size_t i = 0;
    while (i < values.size() && ++values[i] == kSizes[i]) values[i++] = 0;
    if (i == values.size()) break;
  }
}

}  // namespace
}  // namespace rondo::test
