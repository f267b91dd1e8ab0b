// SPDX-License-Identifier: Apache-2.0
// Where ranks run: lines say that they share a core, and one of them goes. The other ranks are lines, not threads.
#include "comm/node/meeting/spread.hpp"

#include <sched.h>

#include <vector>

#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"

using namespace rondo::comm;
using rondo::test::allowed_cores;
using rondo::test::FewCores;

namespace {

constexpr FifoShape kShape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 1 << 16};

struct Node {
  explicit Node(int ranks)
      : memory(rondo::map_anonymous(Segment::bytes(ranks, kShape))), segment(memory.data(), ranks, kShape) {}
  rondo::Mapping memory;
  Segment segment;
};

// The core where this thread is now, and another one.
std::uint32_t here() { return static_cast<std::uint32_t>(::sched_getcpu()); }
std::uint32_t elsewhere(const std::vector<std::uint32_t>& cores) { return cores[0] == here() ? cores[1] : cores[0]; }

// How often the rank `own` moves in so many looks, while `others_here` of the others are on its core.
int moves(Node& node, int own, int others_here, int looks, const std::vector<std::uint32_t>& cores) {
  Spread spread(node.segment, own);
  int moved = 0;
  for (int look = 0; look < looks; ++look) {
    int left = others_here;
    for (int rank = 0; rank < node.segment.local_size(); ++rank) {
      if (rank == own) continue;
      node.segment.line(rank).core = 1 + (left-- > 0 ? here() : elsewhere(cores));
    }
    moved += spread.look() ? 1 : 0;
  }
  return moved;
}

}  // namespace

TEST_CASE("a rank leaves a core that has more than its share, keeps its mask, and ever more rarely", "[spread]") {
  const FewCores two(2);
  const auto cores = allowed_cores();
  if (cores.size() < 2) {
    WARN("skipped: it takes two cores");
    return;
  }
  for (const int ranks : {2, 4, 5}) {
    Node node(ranks);
    const int last = ranks - 1;
    CAPTURE(ranks);
    // The kernel may move the thread between the lines and the look: such a look does not count.
    CHECK(moves(node, last, ranks - 1, 12, cores) <= 1);
    const int often = moves(node, last, ranks - 1, 2000, cores);
    CHECK(often >= 1);
    CHECK(often <= 8);  // after 8, 16, 32 … looks
    CHECK(allowed_cores() == cores);
  }
}

TEST_CASE("who is not the last of a core stays, and so do ranks that are shared out evenly", "[spread]") {
  const FewCores two(2);
  const auto cores = allowed_cores();
  if (cores.size() < 2) {
    WARN("skipped: it takes two cores");
    return;
  }
  Node node(4);
  CHECK(moves(node, 0, 3, 500, cores) == 0);  // another one goes
  CHECK(moves(node, 3, 1, 500, cores) == 0);  // two and two
  CHECK(moves(node, 3, 0, 500, cores) == 0);
  Node odd(5);
  CHECK(moves(odd, 4, 2, 500, cores) == 0);  // three and two
}
