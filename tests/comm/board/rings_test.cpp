// SPDX-License-Identifier: Apache-2.0
// Where places lie: whatever a rank reserves, it overwrites nothing of what it reserved just before, but a window which
// is the same again.
#include "comm/board/rings.hpp"

#include <algorithm>
#include <random>

#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo::comm;

TEST_CASE("places and windows in turn never overlap their predecessor, nor leave the ring") {
  const auto seed = rondo::test::rotating_seed();
  INFO("seed " << seed);
  const bool crowded = GENERATE(false, true);
  for (const std::uint64_t ring_bytes : {std::uint64_t{1} << 20, std::uint64_t{4} << 20}) {
    const FifoShape shape{.slots = 2, .slice_bytes = 4096, .ring_bytes = ring_bytes};
    const rondo::Mapping memory = rondo::map_anonymous(Segment::bytes(2, shape));
    Rings rings(Segment(memory.data(), 2, shape), 0, crowded);
    CHECK((rings.window_bytes() != 0) == (ring_bytes >= 4 << 20));
    std::mt19937_64 random(seed);
    std::size_t start = 0, end = 0;
    std::size_t window_at = 0;
    for (int turn = 0; turn < 10000; ++turn) {
      const bool window = rings.window_bytes() != 0 && random() % 3 == 0;
      const std::size_t most = random() % 2 == 0 ? 4096 : rings.capacity();
      const std::size_t bytes = window ? rings.window_bytes() : 1 + random() % most;
      const bool again = window && rings.window_is_latest();
      const bool folds = random() % 2 == 0;
      const std::size_t at = window ? rings.reserve_window() : rings.reserve(bytes, folds);
      INFO("turn " << turn << ": " << bytes << " at " << at << " after " << start << " to " << end);
      REQUIRE((again ? at == window_at : at >= end || at + bytes <= start));
      REQUIRE(at + bytes <= ring_bytes);
      start = at, end = at + bytes;
      if (window) window_at = at;
      if (window || bytes > (folds && crowded ? ring_bytes / 16 : 4096)) REQUIRE(rings.window_is_latest() == window);
    }
  }
}
