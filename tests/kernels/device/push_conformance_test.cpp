// SPDX-License-Identifier: Apache-2.0
// The push kernels against the host's canonical results, bit for bit: all pairs of parameters by default, [.full] their
// product.
#include "tests/kernels/device/push_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

constexpr std::size_t kMost = SIZE_MAX;  // what the blocks take
constexpr std::size_t kCounts[] = {0, 1, 3, 15, 17, 260, 1000, kMost};
constexpr int kThreads[] = {32, 64, 96};
constexpr int kRanks[] = {1, 2, 3, 4, 8, 11};
constexpr std::size_t kMisalignments[] = {0, 1, 2, 5};

const std::vector<int> kSizes = {std::size(kPushPatterns),
                                 kDataTypeCount,
                                 std::size(kRanks),
                                 std::size(kCounts),
                                 std::size(kMisalignments),
                                 2,
                                 3,
                                 3,
                                 std::size(kThreads),
                                 3};

PushCase case_of(const std::vector<int>& v) {
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
  PushCase c{.pattern = kPushPatterns[at(0)], .call = {}, .blocks = v[7] + 1};
  c.call = {.dtype = static_cast<DataType>(v[1]),
            .ranks = kRanks[at(2)],
            .count = kCounts[at(3)],
            .misalignment = kMisalignments[at(4)],
            .in_place = v[5] != 0,
            .channels = v[6] + 1,
            .root = v[9] * (kRanks[at(2)] - 1) / 2,
            .threads = kThreads[at(8)]};
  return sensible(c);
}

TEST_CASE("all pairs of parameters of the push kernels") {
  const std::uint32_t seed = rotating_seed();
  int runs = 0;
  for (const auto& values : PairwiseCases(kSizes, seed).all()) {
    ++runs;
    const std::string wrong = run_case(case_of(values), seed);
    if (!wrong.empty()) FAIL(wrong);
  }
  CHECK(runs > 60);
}

TEST_CASE("every kernel, pattern and number of ranks, of one word and as much as there is room for") {
  const std::uint32_t seed = rotating_seed();
  for (const kernels::Pattern pattern : kPushPatterns) {
    for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
      for (const int ranks : kRanks) {
        const auto type = static_cast<DataType>(dtype);
        if (device::push_kernel_for(pattern, type, ReduceOp::sum) < 0) continue;
        for (const std::size_t count : {8 / size_of(type), kMost}) {
          const std::string wrong = run_case(
              sensible({.pattern = pattern,
                        .call = {.dtype = type, .ranks = ranks, .count = count, .root = ranks / 2, .threads = 64}}),
              seed, 1);
          if (!wrong.empty()) FAIL(wrong);
        }
      }
    }
  }
}

TEST_CASE("push kernels with every rank on a thread of its own") {
  const std::uint32_t seed = rotating_seed();
  for (const kernels::Pattern pattern : kPushPatterns) {
    for (const int ranks : {2, 3, 4}) {
      PushCase c{.pattern = pattern, .call = {.ranks = ranks, .count = 300, .channels = 2, .threads = 32}, .blocks = 2};
      c.call.on_threads = true;
      const std::string wrong = run_case(sensible(c), seed, 4);
      if (!wrong.empty()) FAIL(wrong);
    }
  }
}

TEST_CASE("the full product of the push kernels", "[.full]") {
  const std::uint32_t seed = rotating_seed();
  std::vector<int> values(kSizes.size());
  for (;;) {
    const std::string wrong = run_case(case_of(values), seed, 1);
    if (!wrong.empty()) FAIL(wrong);
    std::size_t i = 0;
    while (i < values.size() && ++values[i] == kSizes[i]) values[i++] = 0;
    if (i == values.size()) break;
  }
}

TEST_CASE("which calls the push kernels take") {
  using kernels::Pattern;
  for (const DataType dtype : {DataType::f32, DataType::f16, DataType::bf16}) {
    CHECK(device::push_kernel_for(Pattern::all_reduce, dtype, ReduceOp::sum) ==
          device::push_kernel_for(Pattern::reduce_scatter, dtype, ReduceOp::sum));
    CHECK(device::push_kernel_for(Pattern::all_reduce, dtype, ReduceOp::sum) >= 0);
    CHECK(device::push_kernel_for(Pattern::all_reduce, dtype, ReduceOp::average) == -1);
  }
  CHECK(device::push_kernel_for(Pattern::all_reduce, DataType::i32, ReduceOp::sum) == -1);
  CHECK(device::push_kernel_for(Pattern::all_gather, DataType::i8, ReduceOp::sum) >= 0);
  CHECK(device::push_kernel_for(Pattern::gather, DataType::f32, ReduceOp::sum) == -1);
}

}  // namespace
}  // namespace rondo::test
