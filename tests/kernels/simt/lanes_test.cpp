// SPDX-License-Identifier: Apache-2.0
// What lanes see of themselves and share: indices, barriers, shared memory, limits of residence.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Status;

TEST_CASE("simt: every lane knows its place") {
  std::vector<unsigned> seen(3 * 40, 0);
  const Outcome outcome = run({}, {.blocks = 3, .threads = 40}, [&] {
    const bool sound = block_threads() == 40 && grid_blocks() == 3 && lane_index() == thread_index() % 32;
    seen[block_index() * 40 + thread_index()] += sound ? 1 : 100;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(std::all_of(seen.begin(), seen.end(), [](unsigned times) { return times == 1; }));
}

TEST_CASE("simt: nobody passes a barrier before all have come") {
  for (const simt::Policy policy : {simt::Policy::random, simt::Policy::pct_lane, simt::Policy::pct_warp}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<unsigned> rounds(96, 0);
      Tally early;
      const Outcome outcome = run(exploring(policy, seed), {.threads = 96}, [&] {
        for (unsigned round = 1; round <= 4; ++round) {
          rounds[thread_index()] = round;
          block_sync();
          for (const unsigned other : rounds) early += other < round;
          block_sync();
        }
      });
      CHECK(outcome.status == Status::ok);
      CHECK(early == 0);
    }
  }
}

TEST_CASE("simt: block_or tells all lanes of one vote") {
  for (const unsigned voter : {0u, 17u, 63u, 1000u}) {
    Tally yes, late;
    const Outcome outcome = run(exploring(simt::Policy::random, voter), {.threads = 64}, [&] {
      if (block_or(thread_index() == voter)) ++yes;
      if (block_or(false)) ++late;  // a vote does not outlive its barrier
      if (block_or(false)) ++late;
    });
    CHECK(outcome.status == Status::ok);
    CHECK(yes == (voter < 64 ? 64u : 0u));
    CHECK(late == 0);
  }
}

TEST_CASE("simt: groups of warps have barriers of their own") {
  std::vector<unsigned> rounds(96, 0);
  Tally early;
  const Outcome outcome = run(exploring(simt::Policy::pct_lane, 3), {.threads = 96}, [&] {
    const bool pair = thread_index() < 64;
    for (unsigned round = 1; round <= 3; ++round) {
      rounds[thread_index()] = round;
      if (pair) {
        group_sync(1, 64);
      } else {
        group_sync(2, 32);
      }
      const unsigned first = pair ? 0 : 64;
      const unsigned end = pair ? 64 : 96;
      for (unsigned other = first; other < end; ++other) early += rounds[other] < round;
      if (pair) {
        group_sync(1, 64);
      } else {
        group_sync(2, 32);
      }
    }
  });
  INFO(outcome.report);
  CHECK(outcome.status == Status::ok);
  CHECK(early == 0);
}

TEST_CASE("simt: a barrier of the block does not wait for lanes that have returned") {
  Tally through;
  const Outcome outcome = run({}, {.threads = 64}, [&] {
    if (thread_index() >= 32) return;
    block_sync();
    ++through;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(through == 32);
}

TEST_CASE("simt: shared memory is the block's, and not initialised") {
  struct Pair {
    alignas(16) unsigned block, values[32];
  };
  unsigned sums[4] = {};
  Tally undefined;
  const Outcome outcome = run(exploring(simt::Policy::random, 1), {.blocks = 4, .threads = 32}, [&] {
    RONDO_SHARED(Pair, pair);
    RONDO_SHARED(unsigned, other);
    if (thread_index() == 0) {
      undefined += pair.block == 0xA5A5A5A5 && other == 0xA5A5A5A5 ? 1 : 0;
      pair.block = block_index();
      other = 7;
    }
    block_sync();
    pair.values[thread_index()] = pair.block + other;
    block_sync();
    if (thread_index() != 0) return;
    for (const unsigned value : pair.values) sums[block_index()] += value;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(undefined == 4);
  for (unsigned block = 0; block < 4; ++block) CHECK(sums[block] == 32 * (block + 7));
}

TEST_CASE("simt: too much shared memory is an error that names the bytes") {
  struct Large {
    char bytes[20000];
  };
  const Outcome outcome = run({}, {}, [] {
    RONDO_SHARED(Large, large);
    large.bytes[0] = 0;
  });
  CHECK(outcome.status == Status::misuse);
  CHECK(outcome.says("too much shared memory: 20000 bytes"));
}

TEST_CASE("simt: blocks beyond the limit of residence wait until others end") {
  simt::Options options = exploring(simt::Policy::pct_block, 5);
  options.resident_blocks = 2;
  Tally running, ended, most;
  const Outcome outcome = run(options, {.blocks = 7, .threads = 32}, [&] {
    if (thread_index() == 0) most += ++running > most ? 1 : 0;
    block_sync();
    block_sync();
    if (thread_index() == 0) running += ~0u, ++ended;
    block_sync();
  });
  CHECK(outcome.status == Status::ok);
  CHECK(most == 2);
  CHECK(ended == 7);
}

TEST_CASE("simt: blocks that wait for one that is not resident are a deadlock") {
  for (const unsigned limit : {2u, 3u}) {
    simt::Options options = exploring(simt::Policy::random, 1);
    options.resident_blocks = limit;
    std::uint32_t arrived[3] = {};
    const Outcome outcome = run(options, {.name = "meet", .blocks = 3, .threads = 1}, [&] {
      store_release(&arrived[block_index()], 1u);
      for (const std::uint32_t& word : arrived) {
        Spin spin;
        while (load_acquire(&word) == 0) spin.pause(&word, 0u, nullptr);
      }
    });
    INFO(outcome.report);
    CHECK(outcome.status == (limit == 2 ? Status::deadlock : Status::ok));
    CHECK(outcome.says("meet block 2 threads 0-0: not resident") == (limit == 2));
  }
}
