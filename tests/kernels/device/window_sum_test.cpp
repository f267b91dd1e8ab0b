// SPDX-License-Identifier: Apache-2.0
// The kernels made for sums over windows: every way in which buffers lie, together with the general kernel, which uses
// the same counters and staging areas; and what a line can say.
#include "kernels/device/kernels.hpp"
#include "tests/kernels/device/window_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

constexpr DataType kSummed[] = {DataType::f32, DataType::f16, DataType::bf16};
constexpr std::size_t kCounts[] = {0, 1, 7, 33, 260, 1000, 5001};
constexpr int kThreads[] = {32, 64, 96};

// one_shot or two_shot, dtype, ranks, count, misalignment, in place, windows, apart, channels, blocks, threads, on
// threads.
const std::vector<int> kSizes = {2, std::size(kSummed),  8, std::size(kCounts), 3, 2, kWindowsCount, 2, 3,
                                 3, std::size(kThreads), 2};

WindowCase case_of(const std::vector<int>& v) {
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
  WindowCase c;
  c.row = v[0];
  c.call = {.dtype = kSummed[at(1)],
            .ranks = v[2] + 1,
            .count = kCounts[at(3)],
            .misalignment = at(4),
            .in_place = v[5] != 0,
            .channels = v[8] + 1,
            .threads = kThreads[at(10)],
            .on_threads = v[11] != 0};
  c.windows = static_cast<Windows>(v[6]);
  c.apart = v[7] != 0;
  c.blocks = v[9] + 1;
  return sensible(c);
}

TEST_CASE("all pairs of parameters of sums over windows") {
  const std::uint32_t seed = rotating_seed();
  for (const auto& values : PairwiseCases(kSizes, seed).all()) {
    const WindowCase c = case_of(values);
    REQUIRE(c.is_special());
    const std::string wrong = run_case(c, seed, 3);
    if (!wrong.empty()) FAIL(wrong);
  }
}

TEST_CASE("sums over windows and other operations use the same blocks in turn") {
  const std::uint32_t seed = rotating_seed();
  for (const auto windows : {Windows::all, Windows::none, Windows::some_inputs, Windows::some_outputs}) {
    WindowCase sum{.row = static_cast<int>(seed % 2), .call = {.ranks = 3, .count = 300, .channels = 2, .threads = 32}};
    WindowCase other = sum;
    other.call.dtype = DataType::i32;
    sum.windows = other.windows = windows;
    sum.blocks = other.blocks = 2;
    sum = sensible(sum);
    other = sensible(other);
    REQUIRE(sum.is_special());
    REQUIRE(!other.is_special());
    DeviceWorld world = world_of(sum);
    FifoBuffers sums(sum.call), others(other.call);
    for (std::uint32_t i = 0; i < 40; ++i) {
      const bool special = i % 3 != 1;
      FifoBuffers& buffers = special ? sums : others;
      std::vector<device::Launch> all;
      for (int rank = 0; rank < 3; ++rank) all.push_back(world.launch(rank));
      buffers.fill(seed + i);
      add_operation(special ? sum : other, buffers, world, all);
      auto as_sums = window_sum_launches(world, all);
      INFO("launch " << i << ", seed " << seed);
      if (special) {
        REQUIRE(world.run(sum.special_kernel(), as_sums) == "");
      } else {
        REQUIRE(world.run(cuda::soft_kernels().window, all) == "");
      }
      REQUIRE(buffers.check() == "");
    }
  }
}

// What was there when a kernel began its line makes known; ThreadSanitizer knows no other way.
TEST_CASE("what a rank wrote before its kernel began is there for its peers") {
  for (int row = 0; row < 2; ++row) {
    WindowCase c{.row = row, .call = {.ranks = 3, .count = 400, .threads = 32}};
    c = sensible(c);
    DeviceWorld world = world_of(c);
    FifoBuffers buffers(c.call);
    for (std::uint32_t i = 0; i < 3; ++i) {
      std::vector<device::Launch> all;
      for (int rank = 0; rank < 3; ++rank) all.push_back(world.launch(rank));
      buffers.fill(i);
      add_operation(c, buffers, world, all);
      auto sums = window_sum_launches(world, all);
      const auto write_again = [&](std::size_t rank) {
        const device::Operation& operation = all[rank].operation[0];
        auto* const input = const_cast<volatile std::byte*>(operation.input);
        for (std::size_t at = 0; at < operation.count * sizeof(float); ++at) input[at] = std::byte{input[at]};
      };
      REQUIRE(world.run_on_threads(
                  c.special_kernel(), sums, [] {}, write_again) == "");
      REQUIRE(buffers.check() == "");
    }
  }
}

TEST_CASE("a line says where a buffer lies, or that it is staged") {
  using device::kNoPlace;
  CHECK(device::place_of(-1, 0) == kNoPlace);
  CHECK(device::place_of(0, 0) == 0);
  CHECK(device::place_of(63, 16) == (16u << 6 | 63u));
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 40) - 2;
  CHECK(device::place_of(63, kMost) >> device::kWindowBits == kMost);
  CHECK(device::place_of(63, kMost) != kNoPlace);
  CHECK(device::place_of(5, kMost + 1) == kNoPlace);  // further than a line can say
  CHECK(device::place_of(5, ~std::uint64_t{0}) == kNoPlace);
}

TEST_CASE("a plan cuts the message into pieces that lie next to each other") {
  for (const int ranks : {1, 2, 5, 8, 64}) {
    for (const std::uint64_t bytes : {0u, 4u, 16u, 20u, 4096u, 100'000u, 1u << 22}) {
      for (const int channels : {1, 3, 64}) {
        device::Operation operation{};
        operation.algorithm = kernels::find_window_algorithm(kernels::Pattern::all_reduce, "two_shot");
        operation.channels = static_cast<std::uint8_t>(channels);
        const auto sum = device::make_window_sum(operation, bytes, ranks);
        const std::uint64_t pieces = static_cast<unsigned>(channels) * static_cast<unsigned>(ranks);
        CHECK(sum.pieces == static_cast<unsigned>(ranks));
        CHECK((sum.vectors * pieces + sum.longer) * 16 >= bytes);
        CHECK((sum.vectors * pieces + sum.longer) * 16 < bytes + 16);
        CHECK(sum.longer < pieces);
      }
    }
  }
}

}  // namespace
}  // namespace rondo::test
