// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer sees lanes as threads and the seam's orders as the only ones, although all run on one OS thread.
// Built for that sanitizer alone; its reports are counted here and do not fail the program. It reports no place twice,
// so what races lies on the heap, where every allocation is new to it.
#include <memory>

#include "tests/kernels/simt/run.hpp"
#include "tests/kernels/tsan_reports.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Status;

namespace {

struct Shared {
  std::uint64_t data = 0;
  alignas(16) std::uint64_t flag = 0;
};

// Block 0 (or lane 0) writes, then says so with `post`; the other one reads after `wait`.
template <class Post, class Wait>
unsigned reports_of(Post&& post, Wait&& wait) {
  const unsigned before = tsan_reports();
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto memory = std::make_unique<Shared>();
    Shared& shared = *memory;
    const Outcome outcome = run(exploring(simt::Policy::pct_lane, seed), {.blocks = 2, .threads = 1}, [&] {
      if (block_index() == 0) {
        store<std::uint64_t>(&shared.data, 7);
        post(shared);
      } else {
        wait(shared);
        if (load<std::uint64_t>(&shared.data) != 7) trap("the flag came first");
      }
    });
    CHECK(outcome.status == Status::ok);
  }
  return tsan_reports() - before;
}

template <class Load>
void wait_with(const Shared& shared, Load&& load) {
  Spin spin;
  while (load(&shared.flag) == 0) spin.pause(&shared.flag, std::uint64_t{0}, nullptr);
}

// Lanes write, `meet`, and read their neighbour's.
template <class Meet>
unsigned reports_around(Meet&& meet) {
  const unsigned before = tsan_reports();
  const auto values = std::make_unique<unsigned[]>(32);
  const Outcome outcome = run(exploring(simt::Policy::random, 5), {}, [&] {
    values[lane_index()] = 1;
    meet();
    if (values[(lane_index() + 1) % 32] > 1) trap("no such value");
  });
  CHECK(outcome.status == Status::ok);
  return tsan_reports() - before;
}

}  // namespace

TEST_CASE("simt: release and acquire order, anything less is a race") {
  const auto release = [](Shared& s) { store_release(&s.flag, 1); };
  const auto relaxed = [](Shared& s) { store_relaxed(&s.flag, 1); };
  const auto acquire = [](Shared& s) { wait_with(s, [](const std::uint64_t* p) { return load_acquire(p); }); };
  const auto peek = [](Shared& s) { wait_with(s, [](const std::uint64_t* p) { return load_relaxed(p); }); };
  CHECK(reports_of(release, acquire) == 0);
  CHECK(reports_of(relaxed, acquire) > 0);
  CHECK(reports_of(release, peek) > 0);
  CHECK(reports_of(release, [&](Shared& s) { peek(s), (void)load_acquire(&s.flag); }) == 0);
}

// A credit says that data was read, and who has seen it may write there; it makes no store known.
TEST_CASE("simt: a credit orders for who loads it as one, and is no release") {
  const auto credit = [](Shared& s) { give_credit(&s.flag, 1); };
  const auto as_credit = [](Shared& s) { wait_with(s, [](const std::uint64_t* p) { return load_credit(p); }); };
  const auto acquire = [](Shared& s) { wait_with(s, [](const std::uint64_t* p) { return load_acquire(p); }); };
  const auto release = [](Shared& s) { store_release(&s.flag, 1); };
  CHECK(reports_of(credit, as_credit) == 0);
  CHECK(reports_of(credit, acquire) > 0);
  CHECK(reports_of(release, as_credit) == 0);
}

// A line that opens makes known what its lane found; one that releases, all that came before; and who trusts it, knows.
TEST_CASE("simt: a line orders as it was stored, for who trusts it") {
  struct Line {
    std::uint64_t data = 0;
    alignas(16) std::uint64_t words[2] = {};
  };
  const auto reports = [](auto post, bool trusts) {
    const unsigned before = tsan_reports();
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const auto line = std::make_unique<Line>();
      run(exploring(simt::Policy::pct_lane, seed), {.blocks = 2, .threads = 1}, [&] {
        if (block_index() == 0) return post(*line);
        Spin spin;
        for (u64x2 seen = ll_load(line->words); seen.x == 0 || seen.y == 0; seen = ll_load(line->words))
          spin.pause(line->words, seen, nullptr);
        if (trusts) ll_trust(line->words);
        if (load<std::uint64_t>(&line->data) > 7) trap("no such value");
      });
    }
    return tsan_reports() - before;
  };
  const u64x2 come{1, 1};
  const auto releases = [&](Line& line) { store<std::uint64_t>(&line.data, 7), ll_release(line.words, come); };
  CHECK(reports(releases, true) == 0);
  CHECK(reports(releases, false) > 0);
  CHECK(reports([&](Line& line) { line.data = 7, ll_open(line.words, come); }, true) == 0);
  CHECK(reports([&](Line& line) { line.data = 7, ll_open(line.words, come); }, false) > 0);
  CHECK(reports([&](Line& line) { ll_open(line.words, come), store<std::uint64_t>(&line.data, 7); }, true) > 0);
  CHECK(reports([&](Line& line) { line.data = 7, ll_store(line.words, come); }, true) > 0);
}

TEST_CASE("simt: barriers and warp_sync order, other warp operations do not") {
  CHECK(reports_around([] { block_sync(); }) == 0);
  CHECK(reports_around([] { block_or(false); }) == 0);
  CHECK(reports_around([] { group_sync(2, 32); }) == 0);
  CHECK(reports_around([] { warp_sync(); }) == 0);
  CHECK(reports_around([] { warp_ballot(true); }) > 0);
  CHECK(reports_around([] { shuffle(1, 0); }) > 0);
}

TEST_CASE("simt: a barrier orders what came before it, not what comes after") {
  const unsigned before = tsan_reports();
  const auto memory = std::make_unique<unsigned>(0);
  unsigned& value = *memory;
  const Outcome outcome = run(exploring(simt::Policy::random, 5), {}, [&] {
    block_sync();
    if (lane_index() == 0) value = 1;  // lane 1 may still be before its read
    if (lane_index() == 1 && load<unsigned>(&value) > 1) trap("no such value");
    block_sync();
  });
  CHECK(outcome.status == Status::ok);
  CHECK(tsan_reports() > before);
}

TEST_CASE("simt: a launch and its end order host and lanes") {
  const unsigned before = tsan_reports();
  unsigned values[64] = {};
  for (unsigned round = 1; round <= 3; ++round) {
    for (unsigned& value : values) value = round;
    run({}, {.threads = 64}, [&] { values[thread_index()] += round; });
    for (const unsigned value : values) CHECK(value == 2 * round);
  }
  run({}, {.threads = 64}, [&] {
    values[thread_index()] = 5;
    block_sync();
    trap("failed lanes too");
  });
  for (const unsigned value : values) CHECK(value == 5);
  CHECK(tsan_reports() == before);
}
