// SPDX-License-Identifier: Apache-2.0
// What the ledger makes of small kernels.
#define RONDO_COSTS
#include "tests/kernels/device/costs/ledger.hpp"

#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

struct Memory {  // of two ranks, and each one's word for the other
  alignas(128) std::uint64_t word[2][16] = {};
};

struct Counted {
  Chain chain;
  RankCosts rank[2];
};

// Two ranks of one block each run body(rank, memory).
template <class Body>
Counted count(unsigned threads, Body&& body) {
  Memory memory;
  std::vector<std::pair<const std::byte*, const std::byte*>> regions;
  for (const auto& words : memory.word) {
    regions.emplace_back(reinterpret_cast<const std::byte*>(words), reinterpret_cast<const std::byte*>(words + 16));
  }
  Ledger ledger(std::move(regions), 1, threads);
  simt::Options options;
  options.explore = true;
  simt::Scheduler scheduler(options);
  auto lane = [&] { body(simt::t_lane->rank, memory); };
  for (int rank = 0; rank < 2; ++rank) scheduler.add_grid(grid_of({.rank = rank, .threads = threads}, lane));
  REQUIRE(scheduler.run() == simt::Status::ok);
  return {ledger.chain(), {ledger.of(0), ledger.of(1)}};
}

void wait_until(const std::uint64_t* word, std::uint64_t value) {
  Spin spin;
  for (std::uint64_t seen = 0; (seen = load_acquire(word)) != value;) spin.pause(word, seen, nullptr);
}

}  // namespace

TEST_CASE("fences of several lanes are one in a row, and two around a barrier") {
  const Counted beside = count(32, [](int rank, Memory& memory) {
    if (thread_index() < 3) store_release(&memory.word[rank][4 * thread_index()], 1);
  });
  CHECK(beside.chain.fences == 1);
  CHECK(beside.rank[0].fences == 3);
  const Counted in_a_row = count(32, [](int rank, Memory& memory) {
    if (thread_index() == 0) store_release(&memory.word[rank][0], 1);
    block_sync();
    if (thread_index() == 1) store_release(&memory.word[rank][0], 2);
  });
  CHECK(in_a_row.chain.fences == 2);
  CHECK(in_a_row.rank[0].barriers == 1);
}

TEST_CASE("words that go to and fro are as many crossings, and a long wait is one look") {
  const Counted counted = count(1, [](int rank, Memory& memory) {
    if (rank == 1) wait_until(&memory.word[1][0], 1);
    store_release(&memory.word[1 - rank][0], 1);
    if (rank == 0) wait_until(&memory.word[0][0], 1);
  });
  CHECK(counted.chain.crossings == 2);
  CHECK(counted.chain.acquires == 2);
  CHECK(counted.chain.fences == 2);
  CHECK(counted.rank[0].waits == 1);
  CHECK(counted.rank[1].waits == 1);
}

TEST_CASE("a line of two words is one wait, and words of the rank itself are none") {
  const Counted counted = count(32, [](int rank, Memory& memory) {
    if (thread_index() == 0) ll_store(memory.word[1 - rank], {1, 1});
    if (thread_index() == 1) store_relaxed(&memory.word[rank][8], 1);
    block_sync();
    if (thread_index() == 2) load_relaxed(&memory.word[rank][8]);
    if (thread_index() != 0) return;
    Spin spin;
    for (u64x2 seen{}; (seen = ll_load(memory.word[rank])).x != 1 || seen.y != 1;) {
      spin.pause(memory.word[rank], seen, nullptr);
    }
  });
  CHECK(counted.chain.crossings == 1);
  CHECK(counted.rank[0].waits == 1);
  CHECK(counted.chain.fences == 0);
  CHECK(counted.chain.acquires == 0);
}

TEST_CASE("lines that are waited for together are one look, and those one after the other as many as they are") {
  const auto looks = [](bool together) {
    return count(32, [together](int rank, Memory& memory) {
      constexpr unsigned kLines = 3;
      if (thread_index() < kLines) ll_store(&memory.word[1 - rank][4 * thread_index()], {1, 1});
      if (thread_index() != 0) return;
      for (unsigned line = 0; line < kLines; ++line) {
        Spin spin;
        const void* at = &memory.word[rank][4 * line];
        for (u64x2 seen{}; (seen = ll_load(at)).x != 1 || seen.y != 1;) spin.pause(at, seen, nullptr);
        if (!together) lines_have_come();
      }
      if (together) lines_have_come();
    });
  };
  CHECK(looks(true).chain.looks == 1);
  CHECK(looks(false).chain.looks == 3);
  CHECK(looks(false).chain.crossings == 1);
}

TEST_CASE("barriers before the first store to a peer are counted, not those after it") {
  const Counted counted = count(32, [](int rank, Memory& memory) {
    block_sync();
    store<std::uint64_t>(&memory.word[rank][0], 0);
    CHECK_FALSE(block_or(false));
    if (thread_index() == 5) store<std::uint64_t>(&memory.word[1 - rank][1], 0);
    block_sync();
    if (thread_index() == 0) store<std::uint64_t>(&memory.word[1 - rank][2], 0);
  });
  CHECK(counted.rank[0].first_barriers == 2);
  CHECK(counted.rank[0].last_barriers == 2);
  CHECK(counted.rank[0].barriers == 3);
}

TEST_CASE("what a warp's lanes knew before they met, all know after") {
  const Counted counted = count(32, [](int rank, Memory& memory) {
    if (thread_index() == 7) store_release(&memory.word[rank][0], 1);
    warp_sync();
    if (thread_index() == 9) store_release(&memory.word[rank][0], 2);
  });
  CHECK(counted.chain.fences == 2);
}
