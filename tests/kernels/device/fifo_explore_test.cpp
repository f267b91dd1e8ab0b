// SPDX-License-Identifier: Apache-2.0
// Every algorithm and protocol under seeded schedules, in which any access may be the last before another lane runs:
// few slots, several rounds, strong and weak stores. A failure names the seed that replays it.
#include "kernels/device/kernels.hpp"
#include "kernels/device/runs_on_device.hpp"
#include "tests/kernels/device/fifo_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

constexpr int kSeeds = 10;  // of each algorithm and protocol

std::string explore(const FifoCase& c, std::uint32_t seed) {
  DeviceWorld world({.ranks = c.ranks, .blocks = c.channels, .threads = c.threads, .fifo = c.fifo});
  FifoBuffers buffers(c);
  buffers.fill(seed);
  std::vector<device::Launch> launches;
  for (int rank = 0; rank < c.ranks; ++rank) launches.push_back(world.launch(rank));
  buffers.add_to(launches);
  simt::Options options;
  options.explore = true;
  options.seed = seed;
  options.policy = static_cast<simt::Policy>(1 + seed % (simt::kPolicyCount - 1));
  options.weak = seed / 8 % 2 != 0;
  options.max_steps = 20'000'000;
  const std::string report = world.run(cuda::soft_kernels().fifo[static_cast<int>(c.protocol)], launches, options);
  return report.empty() ? buffers.check() : report;
}

TEST_CASE("FIFO collectives under seeded schedules") {
  std::uint32_t seed = rotating_seed();
  for (int row = 0; row < kernels::kAlgorithmCount; ++row) {
    for (int i = 0; i < kSeeds * device::kProtocolCount; ++i, ++seed) {
      const int protocol = i % device::kProtocolCount;
      const FifoCase c{.row = row,
                       .protocol = static_cast<device::Protocol>(protocol),
                       .ranks = 2 + static_cast<int>(seed % 3),
                       .count = 230,
                       .channels = 1,
                       .fifo = {2, 512},
                       .threads = 32};
      if (!c.makes_sense()) continue;
      const std::string wrong = explore(c, seed);
      INFO(c.describe() << " seed " << seed);
      REQUIRE(wrong == "");
    }
  }
}

}  // namespace
}  // namespace rondo::test
