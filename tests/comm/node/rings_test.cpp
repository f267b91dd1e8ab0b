// SPDX-License-Identifier: Apache-2.0
// Where places lie: whatever a rank reserves, it overwrites nothing of what it reserved just before, nor of the reused
// stretch, nor of what two ranks share.
#include "comm/node/rings/rings.hpp"

#include <algorithm>
#include <random>

#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo::comm;

TEST_CASE("places in turn never overlap their predecessor nor the reused, nor leave the ring") {
  const auto seed = rondo::test::rotating_seed();
  INFO("seed " << seed);
  const bool crowded = GENERATE(false, true);
  for (const std::uint64_t ring_bytes : {std::uint64_t{24} << 10, std::uint64_t{100'000}, std::uint64_t{6} << 20}) {
    const FifoShape shape{.slots = 2, .slice_bytes = 4096, .ring_bytes = ring_bytes};
    const rondo::Mapping memory = rondo::map_anonymous(Segment::bytes(2, shape));
    Rings rings(Segment(memory.data(), 2, shape), 0, crowded);
    const std::size_t reused = rings.reserve_reused(), reused_end = reused + rings.reused_bytes();
    REQUIRE(reused_end <= ring_bytes);
    const std::size_t shared = rings.reserve_shared(), shared_end = shared + rings.shared_bytes();
    REQUIRE((shared >= reused_end && rings.shared_bytes() >= rings.capacity()));
    std::mt19937_64 random(seed);
    std::size_t start = 0, end = 0;
    for (int turn = 0; turn < 10000; ++turn) {
      const std::size_t most = random() % 2 == 0 ? std::min<std::size_t>(4096, rings.capacity()) : rings.capacity();
      const std::size_t bytes = 1 + random() % most, at = rings.reserve(bytes);
      INFO("turn " << turn << ": " << bytes << " at " << at << " after " << start << " to " << end);
      REQUIRE((at >= end || at + bytes <= start));
      REQUIRE(at % kLine == 0);
      REQUIRE((at >= reused_end || at + bytes <= reused));
      REQUIRE((at >= shared_end || at + bytes <= shared));
      REQUIRE(at + bytes <= ring_bytes);
      if (random() % 16 == 0) REQUIRE((rings.reserve_reused() == reused && rings.reserve_shared() == shared));
      start = at, end = at + bytes;
    }
  }
}

TEST_CASE("behind a place of a rank with a core of its own nothing is written next") {
  const FifoShape shape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 6 << 20};
  const rondo::Mapping memory = rondo::map_anonymous(Segment::bytes(2, shape));
  for (const std::size_t bytes : {std::size_t{3} << 10, std::size_t{16} << 10, std::size_t{100'000}}) {
    Rings rings(Segment(memory.data(), 2, shape), 0, false), crowd(Segment(memory.data(), 2, shape), 0, true);
    const std::size_t first = rings.reserve(bytes), in_crowd = crowd.reserve(bytes);
    const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
    CHECK(rings.reserve(bytes) == first + rounded + rings.gap_behind(bytes));
    CHECK(crowd.reserve(bytes) == in_crowd + rounded);
    CHECK(rings.gap_behind(bytes) >= 1024);
    CHECK(rings.gap_behind(bytes) <= bytes / 3);
  }
}
