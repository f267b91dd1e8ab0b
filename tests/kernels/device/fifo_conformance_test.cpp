// SPDX-License-Identifier: Apache-2.0
// Every algorithm that runs on devices, on every protocol: all pairs of parameters by default, [.full] their product.
#include "kernels/average.hpp"
#include "kernels/device/runs_on_device.hpp"
#include "tests/kernels/device/fifo_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 3, 15, 17, 1000};
constexpr device::FifoShape kShapes[] = {{2, 512}, {4, 1024}, {8, 512}};
constexpr int kThreads[] = {32, 64, 96};
constexpr std::size_t kMisalignments[] = {0, 1, 2, 5};

const std::vector<int> kSizes = {kernels::kAlgorithmCount,
                                 device::kProtocolCount,
                                 kDataTypeCount,
                                 kReduceOpCount,
                                 8,
                                 std::size(kCounts),
                                 std::size(kMisalignments),
                                 2,
                                 3,
                                 3,
                                 2,
                                 std::size(kShapes),
                                 std::size(kThreads)};

FifoCase case_of(const std::vector<int>& v) {
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
  return {.row = v[0],
          .protocol = static_cast<device::Protocol>(v[1]),
          .dtype = static_cast<DataType>(v[2]),
          .op = static_cast<ReduceOp::Kind>(v[3]),
          .ranks = v[4] + 1,
          .count = kCounts[at(5)],
          .misalignment = kMisalignments[at(6)],
          .in_place = v[7] != 0,
          .channels = v[8] + 1,
          .root = v[9] == 0   ? 0
                  : v[9] == 1 ? v[4]
                              : v[4] / 2,
          .variable_counts = v[10] != 0,
          .fifo = kShapes[at(11)],
          .threads = kThreads[at(12)]};
}

// A case that makes no sense becomes one that does by giving up what does not fit.
FifoCase sensible(FifoCase c) {
  const auto& algorithm = kernels::algorithm_row(c.row);
  if (!is_supported(c.dtype, c.op)) c.op = ReduceOp::sum;
  if (kernels::averages_widely(c.dtype, c.op) && !algorithm.canonical_order) c.op = ReduceOp::sum;
  if (!algorithm.variable_counts) c.variable_counts = false;
  if (algorithm.pattern == kernels::Pattern::all_to_all || algorithm.pattern == kernels::Pattern::barrier) {
    c.in_place = false;
  }
  return c;
}

TEST_CASE("all pairs of parameters of FIFO collectives") {
  const std::uint32_t seed = rotating_seed();
  int runs = 0;
  for (const auto& values : PairwiseCases(kSizes, seed).all()) {
    const FifoCase c = sensible(case_of(values));
    if (!c.makes_sense()) continue;
    ++runs;
    const std::string wrong = run_case(c, seed);
    if (!wrong.empty()) FAIL(wrong);
  }
  CHECK(runs > 150);
}

TEST_CASE("FIFO collectives with every rank on a thread of its own") {
  const std::uint32_t seed = rotating_seed();
  for (int row = 0; row < kernels::kAlgorithmCount; ++row) {
    for (int protocol = 0; protocol < device::kProtocolCount; ++protocol) {
      const FifoCase c{.row = row,
                       .protocol = static_cast<device::Protocol>(protocol),
                       .ranks = 2 + (row + protocol) % 3,
                       .count = 1000,
                       .channels = 1 + row % 2,
                       .fifo = {2, 512},
                       .threads = 32,
                       .on_threads = true};
      if (!c.makes_sense()) continue;
      const std::string wrong = run_case(c, seed);
      if (!wrong.empty()) FAIL(wrong);
    }
  }
}

// Of what decides which code runs; the rest of each case is drawn.
TEST_CASE("the product of algorithms, protocols, dtypes, operators, worlds and counts", "[.full]") {
  constexpr std::size_t kProduct = 6;
  const std::uint32_t seed = rotating_seed();
  std::mt19937 random(seed);
  std::vector<int> values(kSizes.size());
  for (;;) {
    for (std::size_t i = kProduct; i < values.size(); ++i) {
      values[i] = static_cast<int>(random() % static_cast<unsigned>(kSizes[i]));
    }
    FifoCase c = case_of(values);
    const bool reduces = kernels::row_of(kernels::algorithm_row(c.row).pattern).reduces;
    if (is_supported(c.dtype, c.op) && (reduces || c.op == ReduceOp::sum)) {
      c = sensible(c);
      const std::string wrong = c.makes_sense() ? run_case(c, seed, 1) : "";
      if (!wrong.empty()) FAIL(wrong);
    }
    std::size_t i = 0;
    while (i < kProduct && ++values[i] == kSizes[i]) values[i++] = 0;
    if (i == kProduct) break;
  }
}

}  // namespace
}  // namespace rondo::test
