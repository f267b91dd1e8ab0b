// SPDX-License-Identifier: Apache-2.0
// Kernels one after another over the same links: groups, replays as graphs make them, counters about to wrap.
#include "kernels/device/kernels.hpp"
#include "tests/kernels/device/fifo_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

using device::Protocol;
using kernels::find_algorithm;
using kernels::Pattern;

FifoCase small_case(Pattern pattern, std::string_view name, Protocol protocol) {
  return {.row = find_algorithm(pattern, name),
          .protocol = protocol,
          .ranks = 3,
          .count = 100,
          .channels = 2,
          .fifo = {2, 512},
          .threads = 32};
}

TEST_CASE("a launch of several operations gives the same results 100 times") {
  const std::uint32_t seed = rotating_seed();
  for (int p = 0; p < device::kProtocolCount; ++p) {
    const auto protocol = static_cast<Protocol>(p);
    const FifoCase cases[] = {small_case(Pattern::all_reduce, "ring", protocol),
                              small_case(Pattern::all_to_all, "pairwise", protocol),
                              small_case(Pattern::barrier, "dissemination", protocol),
                              small_case(Pattern::reduce_scatter, "direct", protocol)};
    DeviceWorld world({.ranks = 3, .blocks = 2, .threads = 32, .fifo = {2, 512}});
    std::vector<FifoBuffers> buffers;
    for (const FifoCase& c : cases) buffers.emplace_back(c);
    std::vector<device::Launch> launches;
    for (int rank = 0; rank < 3; ++rank) launches.push_back(world.launch(rank));
    for (std::uint32_t i = 0; i < 100; ++i) {
      for (FifoBuffers& b : buffers) b.fill(seed + i);
      // Factors and expectations change with the seed, addresses do not: made once, replayed with new data.
      if (i == 0) {
        for (std::size_t k = 0; k < buffers.size(); ++k) buffers[k].add_to(launches, static_cast<int>(k));
      }
      REQUIRE(world.run(cuda::soft_kernels().fifo[p], launches) == "");
      for (const FifoBuffers& b : buffers) REQUIRE(b.check() == "");
    }
    CHECK(world.header(0).block_sequence[0] == 400);
    CHECK(world.header(2).block_sequence[device::kMaxBlocks - 1] == 400);
  }
}

TEST_CASE("blocks that take no part in an operation keep its number") {
  FifoCase c = small_case(Pattern::all_reduce, "ring", Protocol::simple);
  c.channels = 1;
  DeviceWorld world({.ranks = 3, .blocks = 2, .threads = 32, .fifo = {2, 512}});
  FifoBuffers buffers(c);
  std::vector<device::Launch> launches;
  for (int rank = 0; rank < 3; ++rank) launches.push_back(world.launch(rank));
  buffers.add_to(launches);
  buffers.fill(1);
  REQUIRE(world.run(cuda::soft_kernels().fifo[0], launches) == "");
  CHECK(buffers.check() == "");
  CHECK(world.mailbox(0, 1, 1, Protocol::simple).sent == 0);
  CHECK(world.header(0).block_sequence[1] == 1);
}

TEST_CASE("step counters wrap wherever a flag might") {
  const std::uint32_t seed = rotating_seed();
  for (int p = 0; p < device::kProtocolCount; ++p) {
    for (const std::uint64_t start : {(1ULL << 31) - 3, (1ULL << 32) - 3, (1ULL << 33) - 3}) {
      const FifoCase c = small_case(Pattern::all_reduce, "halving_doubling", static_cast<Protocol>(p));
      DeviceWorld world({.ranks = 3, .blocks = 2, .threads = 32, .fifo = {2, 512}});
      world.start_steps(start);
      FifoBuffers buffers(c);
      std::vector<device::Launch> launches;
      for (int rank = 0; rank < 3; ++rank) launches.push_back(world.launch(rank));
      buffers.add_to(launches);
      for (std::uint32_t i = 0; i < 4; ++i) {
        buffers.fill(seed + i);
        REQUIRE(world.run(cuda::soft_kernels().fifo[p], launches) == "");
        REQUIRE(buffers.check() == "");
      }
      CHECK(world.mailbox(0, 1, 0, static_cast<Protocol>(p)).sent > start + 3);
    }
  }
}

// The receiver runs first and must not take what a slot's far lines held when the flag was last the same.
TEST_CASE("a line of LL that short steps have not reached is not taken for new when its flag comes round again") {
  constexpr std::uint64_t kRound = 1ULL << 31, kRefresh = 1ULL << 20;
  DeviceWorld world({.ranks = 2, .blocks = 1, .threads = 64, .fifo = {2, 512}});
  const void* kernel = cuda::soft_kernels().fifo[static_cast<int>(Protocol::ll)];
  const auto send = [&](std::uint64_t step, std::size_t bytes, std::byte value) {
    world.start_steps(step);
    GuardedBuffer sent(bytes), received(bytes);
    std::fill_n(sent.data(), bytes, value);
    std::vector<device::Launch> launches{world.launch(0), world.launch(1)};
    for (int rank = 0; rank < 2; ++rank) {
      launches[static_cast<std::size_t>(rank)].messages = 1;
      launches[static_cast<std::size_t>(rank)].message[0] = {.data = rank == 0 ? received.data() : sent.data(),
                                                             .bytes = bytes,
                                                             .key = step,
                                                             .count = bytes,
                                                             .kind = 0,
                                                             .peer = 1 - rank,
                                                             .sends = rank == 1,
                                                             .channels = 1};
    }
    REQUIRE(world.run(kernel, launches) == "");
    return std::equal(sent.data(), sent.data() + bytes, received.data());
  };
  CHECK(send(7, 200, std::byte{1}));
  for (std::uint64_t step = kRefresh; step < kRefresh + 2; ++step) CHECK(send(step, 8, std::byte{2}));
  CHECK(send(kRound + 7, 200, std::byte{3}));
}

}  // namespace
}  // namespace rondo::test
