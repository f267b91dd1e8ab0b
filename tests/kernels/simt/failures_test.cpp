// SPDX-License-Identifier: Apache-2.0
// What a kernel can do wrong, and the sentence it gets.
#include <stdexcept>

#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Status;

TEST_CASE("simt: a divergent barrier names both places") {
  const unsigned line = __LINE__;
  const Outcome outcome = run({}, {.threads = 64}, [] {
    if (thread_index() < 32) {
      block_sync();
    } else {
      block_sync();
    }
  });
  INFO(outcome.report);
  CHECK(outcome.status == Status::misuse);
  CHECK(outcome.says("divergent barrier: 32 threads wait at"));
  CHECK(outcome.says("failures_test.cpp:" + std::to_string(line + 3)));
  CHECK(outcome.says("by rank 0 block 0 thread "));
  CHECK(outcome.says("failures_test.cpp:" + std::to_string(line + 5)));
}

TEST_CASE("simt: a group's barrier of a wrong size, and one that nobody can complete") {
  CHECK(run({}, {.threads = 64}, [] { group_sync(1, 48); }).says("whole warps are needed"));
  CHECK(run({}, {.threads = 64}, [] { group_sync(1, 96); }).says("the block has 64 threads"));
  const Outcome outcome = run({}, {.threads = 64}, [] {
    if (thread_index() < 32) group_sync(3, 64);
  });
  CHECK(outcome.status == Status::misuse);
  CHECK(outcome.says("has returned"));
}

TEST_CASE("simt: a deadlock is found at once, with the word, its value and the place") {
  std::uint64_t word = 5;
  const Outcome outcome = run(exploring(simt::Policy::pct_lane, 11), {.name = "stuck", .threads = 64}, [&] {
    if (thread_index() == 40) {
      Spin spin;
      while (load_acquire(&word) == 5) spin.pause(&word, std::uint64_t{5}, nullptr);
    }
    block_sync();
  });
  INFO(outcome.report);
  CHECK(outcome.status == Status::deadlock);
  CHECK(outcome.says("policy=pct_lane seed=11"));
  CHECK(outcome.says("rank 0 stuck block 0 threads 40-40: waiting for the word at"));
  CHECK(outcome.says("which was 5 and is 5, at"));
  CHECK(outcome.says("threads 0-39: at barrier at"));
}

TEST_CASE("simt: before a deadlock the clock may jump, so that deadlines are seen") {
  std::uint64_t word = 0;
  Tally ended;
  simt::Options options = exploring(simt::Policy::random, 1);
  options.idle_clock_ns = 5'000'000;
  const Outcome outcome = run(options, {}, [&] {
    Spin spin;
    const std::uint64_t deadline = timer_ns() + 2'000'000;
    while (load_acquire(&word) == 0 && timer_ns() < deadline) spin.pause(&word, std::uint64_t{0}, nullptr);
    ++ended;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(ended == 32);
  const Outcome without = run(options, {}, [&] {
    Spin spin;
    while (load_acquire(&word) == 0) spin.pause(&word, std::uint64_t{0}, nullptr);
  });
  CHECK(without.status == Status::deadlock);
}

TEST_CASE("simt: an abort word wakes who waits") {
  alignas(128) std::uint32_t abort_word = 0;
  alignas(128) std::uint32_t word = 0;
  Tally drained;
  const Outcome outcome = run(exploring(simt::Policy::random, 2), {.threads = 33}, [&] {
    if (thread_index() == 32) {
      store_release(&abort_word, 1);
      while (drained < 32) load_relaxed(&word);  // never leaves the others to be polled
      return;
    }
    Spin spin;
    while (load_acquire(&word) == 0 && load_relaxed(&abort_word) == 0) spin.pause(&word, 0u, &abort_word);
    ++drained;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(drained == 32);
}

TEST_CASE("simt: a lane that never ends meets the step limit") {
  std::uint32_t word = 0;
  simt::Options options = exploring(simt::Policy::random, 1);
  options.max_steps = 1000;
  const Outcome outcome = run(options, {}, [&] {
    while (load_relaxed(&word) == 0) {
    }
  });
  CHECK(outcome.status == Status::step_limit);
  CHECK(outcome.says("still running after 1001 steps"));
}

TEST_CASE("simt: a trap and an exception end the run, not the program") {
  const Outcome trapped = run({}, {.blocks = 2}, [] {
    if (block_index() == 1 && thread_index() == 9) trap("no such case");
    block_sync();
  });
  CHECK(trapped.status == Status::misuse);
  CHECK(trapped.says("trap: no such case"));
  CHECK(trapped.says("by rank 0 block 1 thread 9"));
  const Outcome thrown = run({}, {}, [] {
    if (thread_index() == 3) throw std::runtime_error("from a kernel");
    block_sync();
  });
  CHECK(thrown.status == Status::misuse);
  CHECK(thrown.says("the kernel threw: from a kernel"));
  CHECK(run({}, {}, [] { throw 7; }).says("the kernel threw"));
}

TEST_CASE("simt: a failed run stays failed, and the next one on the thread works") {
  for (int round = 0; round < 3; ++round) {
    auto body = [] { trap("again"); };
    simt::Scheduler scheduler({});
    scheduler.add_grid(grid_of({}, body));
    CHECK(scheduler.run() == Status::misuse);
    CHECK(scheduler.run() == Status::misuse);
    Tally ran;
    CHECK(run({}, {.threads = 96}, [&] { ++ran; }).status == Status::ok);
    CHECK(ran == 96);
  }
}

TEST_CASE("simt: a lane that may begin early waits for its stream before it uses memory, and before it ends") {
  std::uint64_t word[2] = {};
  const simt::GridSpec early{.early = true};
  const auto uses = [&](auto access) { return run({}, early, [&] { access(); }); };
  for (const Outcome& outcome :
       {uses([&] { load<std::uint64_t>(word); }), uses([&] { store<std::uint64_t>(word, 1); }),
        uses([&] { load_acquire(word); }), uses([&] { store_release(word, 1); }), uses([&] { give_credit(word, 1); }),
        uses([&] { ll_load(word); }), uses([&] { ll_store(word, {}); }), uses([&] { ll128_load(word); }),
        uses([&] { ll128_store(word, {}); }), uses([&] { ll_open(word, {}); }), uses([&] { ll_release(word, {}); }),
        uses([&] { ll_trust(word); })}) {
    INFO(outcome.report);
    CHECK(outcome.status == Status::misuse);
    CHECK(outcome.says("the lane uses memory and has not waited for what comes before its kernel on the stream"));
  }
  const Outcome one_waits = run({}, early, [&] {
    if (thread_index() == 0) await_stream();
    block_sync();
    load<std::uint64_t>(word);
  });
  CHECK(one_waits.says("the lane uses memory and has not waited"));
  CHECK(run({}, early, [] {}).says("the lane ends and has not waited for what comes before its kernel on the stream"));
  CHECK(run({}, early, [&] { await_stream(), load<std::uint64_t>(word); }).status == Status::ok);
  CHECK(run({}, {}, [&] { load<std::uint64_t>(word); }).status == Status::ok);
}

// What others have written meanwhile it would not make known.
TEST_CASE("simt: a lane that opens with a line has met no other lane") {
  alignas(16) std::uint64_t words[2] = {};
  const auto opens = [&](auto before) {
    return run({}, {}, [&] {
      before();
      if (thread_index() == 0) ll_open(words, {1, 1});
    });
  };
  CHECK(opens([] {}).status == Status::ok);
  CHECK(opens([] { warp_ballot(true); }).status == Status::ok);  // orders nothing
  CHECK(opens([] { block_sync(); }).says("the lane opens with a line though it has met others"));
  CHECK(opens([] { warp_sync(); }).says("the lane opens with a line though it has met others"));
}
