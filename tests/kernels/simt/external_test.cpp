// SPDX-License-Identifier: Apache-2.0
// Schedulers in several OS threads that exchange flags, as the ranks of a communicator do.
#include <sys/resource.h>
#include <sys/time.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/kernels/simt/run.hpp"

using namespace rondo;
using namespace rondo::test;
using simt::Status;
using Clock = std::chrono::steady_clock;

namespace {

double thread_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

simt::Options external() {
  simt::Options options;
  options.external = true;
  return options;
}

}  // namespace

TEST_CASE("simt: two threads' schedulers exchange flags and data") {
  constexpr unsigned kRounds = 200;
  struct alignas(128) Side {
    std::uint64_t flag = 0;
    unsigned data[64] = {};
  } sides[2];
  Tally wrong[2];
  Status status[2];
  const auto rank = [&](unsigned me) {
    status[me] = run(external(), {.rank = static_cast<int>(me), .threads = 64}, [&, me] {
                   Side& mine = sides[me];
                   Side& theirs = sides[1 - me];
                   for (std::uint64_t round = 1; round <= kRounds; ++round) {
                     mine.data[thread_index()] = static_cast<unsigned>(round) + thread_index();
                     block_sync();
                     if (thread_index() == 0) store_release(&mine.flag, 2 * round - 1);
                     if (thread_index() == 0) {
                       Spin spin;
                       std::uint64_t seen = 0;
                       while ((seen = load_acquire(&theirs.flag)) < 2 * round - 1)
                         spin.pause(&theirs.flag, seen, nullptr);
                     }
                     block_sync();
                     wrong[me] += theirs.data[thread_index()] != round + thread_index();
                     block_sync();
                     if (thread_index() == 0) {
                       store_release(&mine.flag, 2 * round);
                       Spin spin;
                       std::uint64_t seen = 0;
                       while ((seen = load_acquire(&theirs.flag)) < 2 * round) spin.pause(&theirs.flag, seen, nullptr);
                     }
                     block_sync();
                   }
                 }).status;
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  CHECK(status[0] == Status::ok);
  CHECK(status[1] == Status::ok);
  CHECK(wrong[0] + wrong[1] == 0);
}

TEST_CASE("simt: who waits for long costs next to nothing, looks at the clock, and is quick to see a change") {
  std::uint32_t flag = 0, looks = 0;
  Clock::time_point seen_at;
  double cpu = 0;
  Status status{};
  std::thread waiter([&] {
    const double before = thread_cpu_seconds();
    status = run(external(), {.threads = 256}, [&] {
               Spin spin;
               while (load_acquire(&flag) == 0) {
                 spin.pause(&flag, 0u, nullptr);
                 if (thread_index() == 0) ++looks;
               }
             }).status;
    seen_at = Clock::now();
    cpu = thread_cpu_seconds() - before;
  });
  constexpr auto kWait = std::chrono::milliseconds(400);
  std::this_thread::sleep_for(kWait);  // this is what is measured, not a way to wait for something
  __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
  const auto stored_at = Clock::now();
  waiter.join();
  CHECK(status == Status::ok);
  CHECK(looks >= 20);
  CHECK(looks <= 400);
  CHECK(cpu < 0.25 * 0.4);
  CHECK(seen_at - stored_at < std::chrono::milliseconds(100));
}

TEST_CASE("simt: a deadline of the lanes' own is met without anybody's help") {
  std::uint32_t flag = 0;
  Tally ended;
  const auto start = Clock::now();
  const Outcome outcome = run(external(), {.threads = 64}, [&] {
    Spin spin;
    const std::uint64_t deadline = timer_ns() + 20'000'000;
    while (load_acquire(&flag) == 0 && timer_ns() < deadline) spin.pause(&flag, 0u, nullptr);
    ++ended;
  });
  CHECK(outcome.status == Status::ok);
  CHECK(ended == 64);
  CHECK(Clock::now() - start >= std::chrono::milliseconds(20));
  CHECK(Clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("simt: the watchdog ends a wait that nobody else would") {
  std::uint32_t flag = 0;
  simt::Options options = external();
  options.watchdog_s = 1;
  const Outcome outcome = run(options, {}, [&] {
    Spin spin;
    while (load_acquire(&flag) == 0) spin.pause(&flag, 0u, nullptr);
  });
  CHECK(outcome.status == Status::timeout);
  CHECK(outcome.says("nothing has moved for 1 s"));
  CHECK(outcome.says("waiting for the word at"));
}
