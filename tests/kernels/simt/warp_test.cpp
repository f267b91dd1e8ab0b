// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Status;

TEST_CASE("simt: ballots and shuffles, in a partial last warp too") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Tally wrong;
    const Outcome outcome = run(exploring(simt::Policy::random, seed), {.threads = 41}, [&] {
      const unsigned lane = lane_index();
      const bool partial = thread_index() >= 32;
      const std::uint32_t odd = warp_ballot(lane % 2 == 1);
      wrong += odd != (partial ? 0xAAu : 0xAAAAAAAAu);
      wrong += warp_any(false) || !warp_any(lane == 3);
      wrong += shuffle(100 + thread_index(), 5) != (partial ? 137u : 105u);
      wrong += shuffle(0.5 * lane, (lane + 1) % 8) != 0.5 * ((lane + 1) % 8);
      if (partial) wrong += shuffle(lane, 31) != lane;  // there is no such lane: its own value
    });
    INFO(outcome.report);
    CHECK(outcome.status == Status::ok);
    CHECK(wrong == 0);
  }
}

TEST_CASE("simt: warp_sync orders what lanes of a warp share") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    unsigned values[32] = {};
    Tally wrong;
    const Outcome outcome = run(exploring(simt::Policy::pct_lane, seed), {}, [&] {
      for (unsigned round = 1; round <= 3; ++round) {
        values[lane_index()] = round;
        warp_sync();
        wrong += values[(lane_index() + 1) % 32] != round;
        warp_sync();
      }
    });
    CHECK(outcome.status == Status::ok);
    CHECK(wrong == 0);
  }
}

TEST_CASE("simt: different operations of one warp are named") {
  const Outcome outcome = run({}, {}, [] {
    if (lane_index() < 16) {
      warp_sync();
    } else {
      warp_ballot(true);
    }
  });
  CHECK(outcome.status == Status::misuse);
  CHECK(outcome.says("mismatched warp operation"));
  CHECK(outcome.says("warp_test.cpp:"));
}

TEST_CASE("simt: a warp operation without a lane that has returned is named") {
  for (const bool others_wait_first : {false, true}) {
    std::uint32_t flag = 0;
    const Outcome outcome = run({}, {}, [&] {
      if (lane_index() != 7) {
        store_relaxed(&flag, 1);
        if (!others_wait_first) block_sync();
        warp_sync();
      } else if (others_wait_first) {
        Spin spin;  // it looks only when nobody else can run
        while (load_relaxed(&flag) == 0) spin.pause(&flag, 0u, nullptr);
      }
    });
    INFO(outcome.report);
    CHECK(outcome.status == Status::misuse);
    CHECK(outcome.says("has returned"));
    CHECK(outcome.says("warp_test.cpp:"));
    CHECK(outcome.says("waits for all of it") == others_wait_first);
  }
}

namespace {

// One warp sends rounds of 512 bytes to another in ll128 lines, flag in the last word of each line.
struct Line128 {
  alignas(128) std::uint64_t words[64] = {};
  std::uint32_t go[4] = {};
  Tally torn;

  void send() {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const bool has_flag = lane_index() % 8 == 7;
      ll128_store(words + 2 * lane_index(), {round, has_flag ? round : round + 100});
      if (lane_index() == 0) {
        Spin spin;
        std::uint32_t seen = 0;
        while ((seen = load_acquire(&go[0])) != round) spin.pause(&go[0], seen, nullptr);
      }
      warp_sync();
    }
  }
  void receive() {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const bool has_flag = lane_index() % 8 == 7;
      u64x2 value{};
      Spin spin;
      while (true) {
        value = ll128_load(words + 2 * lane_index());
        const std::uint32_t behind = warp_ballot(has_flag && value.y != round);
        if (behind == 0) break;
        // Everybody watches the first flag that is missing.
        const unsigned lane = static_cast<unsigned>(__builtin_ctz(behind));
        const std::uint64_t seen = shuffle(value.y, lane);
        spin.pause(words + 2 * lane + 1, seen, nullptr);
      }
      torn += value.x != round || value.y != (has_flag ? round : round + 100);
      warp_sync();
      if (lane_index() == 0) store_release(&go[0], static_cast<std::uint32_t>(round));
    }
  }
};

}  // namespace

TEST_CASE("simt: an ll128 line is whole once its flag is there") {
  for (const bool weak : {false, true}) {
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      Line128 line;
      const auto policy = static_cast<simt::Policy>(1 + seed % (simt::kPolicyCount - 1));
      const Outcome outcome = run(exploring(policy, seed, weak), {.blocks = 2}, [&] {
        if (block_index() == 0) {
          line.send();
        } else {
          line.receive();
        }
      });
      INFO(outcome.report);
      CHECK(outcome.status == Status::ok);
      CHECK(line.torn == 0);
    }
  }
}
