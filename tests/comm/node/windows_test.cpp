// SPDX-License-Identifier: Apache-2.0
// The list of windows by itself: which buffer lies where, and what happens when ranks let go at different times.
#include "comm/node/memory/windows.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;

namespace {

constexpr std::size_t kBytes = 10'000;

// Two ranks' views of one memory.
struct Pair {
  std::shared_ptr<NodeWindow> windows[2];
  Pair() {
    const std::size_t total = NodeWindow::total_bytes(2, kBytes);
    const Fd memory = make_sealed_memfd("test", total);
    for (int own = 0; own < 2; ++own) windows[own] = std::make_shared<NodeWindow>(map(memory, total), 2, own, kBytes);
  }
};

std::size_t pages_present(const NodeWindow& window, int index) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(window.block(index)) % 4096, bytes = before + kBytes;
  std::vector<unsigned char> present((bytes + 4095) / 4096);
  REQUIRE(::mincore(window.block(index) - before, bytes, present.data()) == 0);
  std::size_t count = 0;
  for (const unsigned char page : present) count += page & 1U;
  return count;
}

}  // namespace

TEST_CASE("a buffer is found in its own rank's block alone, and nothing is found beyond a block") {
  Windows windows;
  CHECK_FALSE(windows.any());
  Pair first, second;
  windows.add(first.windows[0]);
  const std::uint32_t id = windows.add(second.windows[0]);
  CHECK(windows.any());
  windows.look();
  std::byte* const block = second.windows[0]->own();

  const auto place = windows.find(block + 100, kBytes - 100);
  REQUIRE(place);
  CHECK(place->window == id);
  CHECK(place->offset == 100);
  CHECK_FALSE(windows.find(block + 100, kBytes - 99));
  CHECK_FALSE(windows.find(block + kBytes + 1, 0));
  CHECK_FALSE(windows.find(second.windows[0]->block(1), 1));
  CHECK_FALSE(windows.find(&place, 1));

  CHECK(windows.at(1, *place, kBytes - 100) == second.windows[0]->block(1) + 100);
  CHECK(windows.at(1, {id, 101}, kBytes - 100) == nullptr);
  CHECK(windows.at(1, {id, ~std::uint64_t{0}}, 2) == nullptr);
  CHECK(windows.at(1, {id, 0}, kBytes + 1) == nullptr);
  CHECK(windows.at(1, {id + 1, 0}, 1) == nullptr);
}

TEST_CASE("blocks are zeroed memory of their own that both ranks see") {
  const Pair pair;
  for (int index = 0; index < 2; ++index) {
    CHECK(std::all_of(pair.windows[0]->block(index), pair.windows[0]->block(index) + kBytes,
                      [](std::byte byte) { return byte == std::byte{0}; }));
    std::memset(pair.windows[0]->block(index), index + 1, kBytes);
  }
  for (int index = 0; index < 2; ++index) {
    CHECK(std::all_of(pair.windows[1]->block(index), pair.windows[1]->block(index) + kBytes,
                      [index](std::byte byte) { return byte == static_cast<std::byte>(index + 1); }));
  }
}

TEST_CASE("blocks of up to eight ranks begin 8 lines apart or more, wherever in their pages, aligned to lines") {
  constexpr int kRanks = 9;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64} << 10, std::size_t{2} << 20}) {
    const NodeWindow window(map_anonymous(NodeWindow::total_bytes(kRanks, bytes)), kRanks, 0, bytes);
    const auto start = [&](int index) { return reinterpret_cast<std::uintptr_t>(window.block(index)); };
    for (int a = 0; a < kRanks; ++a) {
      CHECK(start(a) % 64 == 0);
      std::memset(window.block(a), 1, bytes);
      if (a > 0) CHECK(start(a) >= start(a - 1) + bytes);
      for (int b = std::max(0, a - 7); b < a; ++b) {
        const std::uintptr_t apart = (start(a) - start(b)) % 4096;
        CHECK(std::min(apart, 4096 - apart) >= 8 * 64);
      }
    }
  }
}

TEST_CASE("a window stays until every rank has let go; then its pages are gone at once") {
  Pair pair;
  Windows ranks[2];
  const std::uint32_t id = ranks[0].add(pair.windows[0]);
  ranks[1].add(pair.windows[1]);
  for (Windows& rank : ranks) rank.look();
  for (int own = 0; own < 2; ++own) {
    CHECK(pair.windows[own]->populate(own));
    std::memset(pair.windows[own]->own(), 1, kBytes);
  }
  ranks[0].release(id);
  ranks[0].look();
  CHECK(ranks[0].at(1, {id, 0}, kBytes) != nullptr);  // rank 1 may still use it
  CHECK(ranks[1].at(0, {id, 0}, kBytes) != nullptr);
  CHECK(pages_present(*pair.windows[0], 0) == 3);
  ranks[1].release(id);
  CHECK(ranks[1].at(0, {id, 0}, kBytes) != nullptr);  // a call may be looking at it
  CHECK(pair.windows[1].use_count() == 2);
  CHECK(pages_present(*pair.windows[0], 0) == 0);
  CHECK(pages_present(*pair.windows[0], 1) == 0);
  for (Windows& rank : ranks) {
    rank.look();
    CHECK(rank.at(0, {id, 0}, 1) == nullptr);
    CHECK(rank.any());  // there has been one
  }
  for (const auto& window : pair.windows) CHECK(window.use_count() == 1);
}

TEST_CASE("windows go in any order, and numbers are not used again") {
  Windows windows;
  std::vector<std::shared_ptr<NodeWindow>> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(std::make_shared<NodeWindow>(map_anonymous(NodeWindow::total_bytes(1, kBytes)), 1, 0, kBytes));
    CHECK(windows.add(made.back()) == static_cast<std::uint32_t>(i));
  }
  windows.release(1);
  windows.look();
  CHECK(made[1].use_count() == 1);
  CHECK(windows.find(made[2]->own(), kBytes)->window == 2);
  windows.release(0);
  windows.release(0);  // unknown by now
  windows.release(2);
  windows.look();
  CHECK(made[0].use_count() + made[2].use_count() == 2);
  CHECK(windows.add(made[0]) == 3);
}

TEST_CASE("what is aligned and kept of a mapping is all that stays mapped") {
  constexpr std::size_t kHuge = 2 << 20;
  const std::size_t bytes = kHuge + 5000;
  std::byte* start = nullptr;
  const auto mapped = [](std::byte* page) {
    unsigned char present = 0;
    return ::mincore(page, 1, &present) == 0;
  };
  {
    const Mapping mapping = map_anonymous(bytes, kHuge);
    start = mapping.data();
    CHECK(reinterpret_cast<std::uintptr_t>(start) % kHuge == 0);
    CHECK(mapping.bytes() == bytes);
    std::memset(start, 1, bytes);
  }
  for (std::size_t at = 0; at < bytes; at += 4096) REQUIRE_FALSE(mapped(start + at));
}
