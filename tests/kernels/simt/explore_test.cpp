// SPDX-License-Identifier: Apache-2.0
// Schedules: repeatable by their seed, adversarial enough to find an order bug, and weak where CUDA's memory is.
#include <set>
#include <vector>

#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Policy;
using simt::Status;

namespace {

// Each lane adds up what it finds; the lanes of a block meet in between, so that schedules matter.
std::uint64_t mix(const simt::Options& options, std::uint64_t* steps, std::uint64_t* switches) {
  std::uint64_t word = 1;
  const Outcome outcome = run(options, {.blocks = 2, .threads = 64}, [&] {
    for (int i = 0; i < 5; ++i) {
      store_relaxed(&word, load_relaxed(&word) * 31 + thread_index());
      if (i == 2) block_sync();
      warp_ballot(true);
    }
  });
  CHECK(outcome.status == Status::ok);
  *steps = outcome.steps;
  *switches = outcome.switches;
  return word;
}

}  // namespace

TEST_CASE("simt: a seed is a schedule") {
  for (int policy = 0; policy < simt::kPolicyCount; ++policy) {
    for (const bool weak : {false, true}) {
      const simt::Options options = exploring(static_cast<Policy>(policy), 42, weak);
      std::uint64_t steps[3], switches[3];
      const std::uint64_t first = mix(options, &steps[0], &switches[0]);
      CHECK(mix(options, &steps[1], &switches[1]) == first);
      CHECK(steps[1] == steps[0]);
      CHECK(switches[1] == switches[0]);
      if (static_cast<Policy>(policy) == Policy::round_robin && !weak) continue;
      std::uint64_t different = 0;  // other seeds are other schedules
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        different += mix(exploring(static_cast<Policy>(policy), seed, weak), &steps[2], &switches[2]) != first;
      }
      CHECK(different > 5);
    }
  }
}

namespace {

// Block 1 must not read before block 0 has stored twice: it looks at the first flag only, and is wrong only if it gets
// all its turns between the two.
bool order_bug_shows(Policy policy, std::uint64_t seed) {
  std::uint32_t flag = 0, data = 0, seen = 1;
  const Outcome outcome = run(exploring(policy, seed), {.blocks = 2, .threads = 1}, [&] {
    if (block_index() == 0) {
      store_release(&flag, 1);
      store_release(&data, 1);
    } else {
      if (load_acquire(&flag) == 0) return;
      seen = load_acquire(&data);
    }
  });
  CHECK(outcome.status == Status::ok);
  return seen == 0;
}

}  // namespace

TEST_CASE("simt: pct finds an order bug that round robin never meets") {
  unsigned round_robin = 0, pct = 0, random = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    round_robin += order_bug_shows(Policy::round_robin, seed);
    random += order_bug_shows(Policy::random, seed);
    simt::Options options = exploring(Policy::pct_block, seed);
    pct += order_bug_shows(options.policy, seed);
  }
  CHECK(round_robin == 0);
  CHECK(random > 0);
  CHECK(pct > 0);
}

namespace {

struct Message {
  std::uint64_t data = 0, flag = 0;
};

unsigned stale_reads(bool weak, bool release, Policy policy) {
  Tally stale;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Message message;
    const Outcome outcome = run(exploring(policy, seed, weak), {.blocks = 2, .threads = 1}, [&] {
      if (block_index() == 0) {
        store_relaxed(&message.data, 7);
        if (release) {
          store_release(&message.flag, 1);
        } else {
          store_relaxed(&message.flag, 1);
        }
        return;
      }
      Spin spin;
      while (load_acquire(&message.flag) == 0) spin.pause(&message.flag, std::uint64_t{0}, nullptr);
      stale += load_relaxed(&message.data) != 7;
    });
    CHECK(outcome.status == Status::ok);
  }
  return stale;
}

}  // namespace

TEST_CASE("simt: weak mode reorders relaxed stores, and none over a release") {
  for (const Policy policy : {Policy::random, Policy::pct_lane}) {
    CHECK(stale_reads(true, false, policy) > 10);
    CHECK(stale_reads(true, true, policy) == 0);
    CHECK(stale_reads(false, false, policy) == 0);
  }
}

TEST_CASE("simt: in weak mode a lane sees its own stores, and one word's stores in their order") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::uint64_t word = 0;
    Tally wrong;
    const Outcome outcome = run(exploring(Policy::random, seed, true), {.blocks = 2, .threads = 1}, [&] {
      std::uint64_t before = 0;
      for (std::uint64_t i = 1; i <= 20; ++i) {
        if (block_index() == 0) {
          store_relaxed(&word, i);
          wrong += load_relaxed(&word) != i;
        } else {
          const std::uint64_t now = load_relaxed(&word);
          wrong += now < before;
          before = now;
        }
      }
    });
    CHECK(outcome.status == Status::ok);
    CHECK(wrong == 0);
    CHECK(word == 20);  // a kernel's end makes everything visible
  }
}

TEST_CASE("simt: in weak mode a release lets out what the block stored before its barrier") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::uint64_t data[64] = {}, flag = 0;
    Tally stale;
    const Outcome outcome = run(exploring(Policy::random, seed, true), {.blocks = 2, .threads = 64}, [&] {
      if (block_index() == 0) {
        store_relaxed(&data[thread_index()], 1);
        block_sync();
        if (thread_index() == 5) store_release(&flag, 1);
        return;
      }
      Spin spin;
      while (load_acquire(&flag) == 0) spin.pause(&flag, std::uint64_t{0}, nullptr);
      stale += load_relaxed(&data[thread_index()]) == 0;
    });
    CHECK(outcome.status == Status::ok);
    CHECK(stale == 0);
  }
}

TEST_CASE("simt: in weak mode a word keeps the order of stores that a barrier has ordered") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::uint64_t word = 0, other = 0;
    const Outcome outcome = run(exploring(Policy::random, seed, true), {.threads = 2}, [&] {
      if (thread_index() == 0) store_relaxed(&word, 1);
      block_sync();
      if (thread_index() == 1) store_relaxed(&word, 2);
      for (int i = 0; i < 9; ++i) load_relaxed(&other);
    });
    CHECK(outcome.status == Status::ok);
    CHECK(word == 2);
  }
}

TEST_CASE("simt: of an ll line each word is whole, the line is not") {
  unsigned torn_lines = 0, torn_words = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    alignas(16) std::uint64_t line[2] = {};
    const Outcome outcome = run(exploring(Policy::random, seed), {.blocks = 2, .threads = 1}, [&] {
      constexpr std::uint64_t kWord = 0x0101010101010101;
      for (std::uint64_t round = 1; round <= 3; ++round) {
        if (block_index() == 0) {
          ll_store(line, {round * kWord, round * kWord});
        } else {
          const u64x2 value = ll_load(line);
          torn_lines += value.x != value.y;
          torn_words += value.x % kWord != 0 || value.y % kWord != 0;
        }
      }
    });
    CHECK(outcome.status == Status::ok);
  }
  CHECK(torn_lines > 0);
  CHECK(torn_words == 0);
}

TEST_CASE("simt: the words of an ll line are stored and loaded in either order") {
  unsigned loaded_second_first = 0, stored_second_first = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    alignas(16) std::uint64_t line[2] = {}, other[2] = {};
    const Outcome outcome = run(exploring(Policy::random, seed), {.blocks = 2, .threads = 1}, [&] {
      if (block_index() == 0) {
        store_relaxed(&line[1], 1);
        store_relaxed(&line[0], 1);
        ll_store(other, {1, 1});
      } else {
        const u64x2 value = ll_load(line);
        loaded_second_first += value.x == 1 && value.y == 0;
        const std::uint64_t second = load_relaxed(&other[1]);
        stored_second_first += second == 1 && load_relaxed(&other[0]) == 0;
      }
    });
    CHECK(outcome.status == Status::ok);
  }
  CHECK(loaded_second_first > 0);
  CHECK(stored_second_first > 0);
}

TEST_CASE("simt: pct runs the unit of the highest priority, in all orders") {
  for (const Policy policy : {Policy::pct_lane, Policy::pct_warp, Policy::pct_block}) {
    std::set<std::vector<unsigned>> orders;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      std::vector<Tally> turns(100);  // of units, repetitions left out; counted from 1
      Tally taken;
      simt::Options options = exploring(policy, seed);
      options.pct_changes = 0;
      const unsigned threads = policy == Policy::pct_lane ? 1 : 32;
      std::uint64_t word = 0;
      const Outcome outcome = run(options, {.blocks = 4, .threads = threads}, [&] {
        for (int i = 0; i < 4; ++i) {
          load_relaxed(&word);
          if (taken == 0 || turns[taken - 1] != block_index() + 1) turns[++taken - 1] += block_index() + 1;
        }
      });
      CHECK(outcome.status == Status::ok);
      CHECK(taken == 4);
      orders.insert(std::vector<unsigned>(turns.begin(), turns.begin() + 4));
    }
    CHECK(orders.size() > 15);
  }
}

TEST_CASE("simt: an incremental run pauses, ends grid by grid and can be fed") {
  std::uint32_t flag = 0;
  auto waits = [&] {
    Spin spin;
    while (load_acquire(&flag) == 0) spin.pause(&flag, 0u, nullptr);
  };
  auto sets = [&] { store_release(&flag, 1); };
  simt::Options options = exploring(Policy::random, 3);
  options.incremental = true;
  simt::Scheduler scheduler(options);
  const int first = scheduler.add_grid(grid_of({}, waits));
  CHECK(scheduler.run() == Status::deadlock);  // stuck for now
  CHECK_FALSE(scheduler.is_done(first));
  const int second = scheduler.add_grid(grid_of({.rank = 1}, sets));
  Status status = Status::paused;
  for (int i = 0; i < 10 && status == Status::paused; ++i) status = scheduler.run();
  CHECK(status == Status::ok);
  CHECK(scheduler.is_done(first));
  CHECK(scheduler.is_done(second));
}
