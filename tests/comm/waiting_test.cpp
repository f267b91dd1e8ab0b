// SPDX-License-Identifier: Apache-2.0
// What waiting costs: processor time, and the core; and who is waited for.
#include <rondo/communicator.hpp>

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "comm/setup/config.hpp"
#include "comm/setup/placement.hpp"
#include "comm/team/team.hpp"
#include "comm/team/waiter.hpp"
#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::on_ranks;

namespace {

rusage usage_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage;
}

std::chrono::microseconds cpu_time() {  // of this thread
  const rusage usage = usage_of_this_thread();
  const auto of = [](const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Rank 0, which sleeps at once when it waits.
struct FirstOfTwo {
  FirstOfTwo() { waiter.begin({}, false, 60s); }
  comm::Team::Parts parts() const {
    auto bells = std::make_shared<std::vector<Fd>>();
    for (int rank = 0; rank < 2; ++rank) bells->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    comm::Team::Parts parts;
    for (int r = 0; r < 2; ++r) parts.placement.push_back({.local_rank = r, .segment_index = r, .host = "here"});
    parts.segment = segment;
    parts.bells = comm::Doorbells(segment, bells);
    return parts;
  }
  static comm::Config config() {
    comm::Config config;
    config.spin = config.yields = 0;
    return config;
  }
  static constexpr comm::FifoShape kShape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 48 << 10};
  const Mapping memory = map_anonymous(comm::Segment::bytes(2, kShape));
  const comm::Segment segment{memory.data(), 2, kShape};
  comm::Team team{parts()};
  comm::Waiter waiter{team, config()};
};

}  // namespace

TEST_CASE("a rank of this node that has left is the culprit soon; one elsewhere when its connection ends") {
  FirstOfTwo rank;
  comm::Waiter& waiter = rank.waiter;
  const Fd socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));  // that nothing comes from
  rank.segment.line(1).departed = 1;
  const auto wait_for = [&](comm::Wake wake, bool more_comes, std::chrono::milliseconds duration) {
    const comm::Blocked blocked{.peer = 1, .wake = wake};
    const auto until = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 2; ++i) waiter.idle(std::span(&blocked, 1));  // until it has slept
      if (more_comes) waiter.progressed();
    }
  };
  // What it had sent may still be on its way, or not read yet. Time for several looks at who has left.
  CHECK_NOTHROW(wait_for({}, true, 300ms));
  CHECK_NOTHROW(wait_for({comm::Wake::By::descriptor, socket.get(), POLLIN}, false, 300ms));
  CHECK_NOTHROW(wait_for({comm::Wake::By::looking}, false, 300ms));
  CHECK(test::code_of(test::thrown_by([&] { wait_for({}, false, 30s); })) == ErrorCode::peer_lost);
}

TEST_CASE("a rank that nothing wakes looks again soon, and less and less often") {
  FirstOfTwo rank;
  const auto time_of = [&](int looks, comm::Wake wake) {
    const comm::Blocked blocked{.peer = 1, .wake = wake};
    const auto begun = std::chrono::steady_clock::now();
    for (int look = 0; look < looks; ++look) rank.waiter.idle(std::span(&blocked, 1));
    rank.waiter.progressed();
    return std::chrono::steady_clock::now() - begun;
  };
  const Fd silent(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK(time_of(25, {comm::Wake::By::looking}) < 2s);  // naps up to 2 ms, and what a busy machine adds
  CHECK(time_of(100, {comm::Wake::By::looking}) > 100ms);
  CHECK(time_of(5, {comm::Wake::By::doorbell}) > 100ms);
  CHECK(time_of(5, {comm::Wake::By::descriptor, silent.get(), POLLIN}) > 100ms);
}

TEST_CASE("a rank that waits long takes no processor time") {
  constexpr auto kWait = 500ms;
  std::atomic<std::int64_t> spent_us{0};
  const int world = GENERATE(2, 4);
  const test::FewCores two(2);
  on_ranks(world, [&](Communicator& comm) {
    std::vector<float> data(2);
    comm.all_reduce(data, ReduceOp::sum);
    const auto before = cpu_time();
    if (comm.rank() == 0) std::this_thread::sleep_for(kWait);  // the wait that is measured
    comm.all_reduce(data, ReduceOp::sum);
    if (comm.rank() == 1) spent_us = (cpu_time() - before).count();
  });
  CHECK(spent_us < kWait / 1us / 100);  // a rank that polled would take all of it
}

TEST_CASE("who waits beside somebody that computes sleeps soon") {
  constexpr auto kWait = 500ms;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  std::atomic<bool> ends{false};
  std::thread computes([&] {
    ::sched_setaffinity(0, sizeof one, &one);
    while (!ends) {
    }
  });
  std::atomic<long> switches{0};
  on_ranks(2, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(kWait);  // the wait that is measured
      return comm.barrier();
    }
    ::sched_setaffinity(0, sizeof one, &one);
    const long before = usage_of_this_thread().ru_nivcsw;  // switches without sleep: yields
    comm.barrier();
    switches = usage_of_this_thread().ru_nivcsw - before;
  });
  ends = true;
  computes.join();
  CHECK(switches < 20);  // each of them a few milliseconds; all the yields of a wait are 50
}

// Who came last goes on at once where that saves a switch, and after a barrier behind those who waited.
TEST_CASE("ranks that share a core leave a barrier in turns") {
  constexpr std::size_t kCalls = 400;
  const test::FewCores one(1);
  const auto repeats = [&](auto call) {  // times that a rank ended two calls before the other ended one
    std::array<std::atomic<int>, 2 * kCalls> ended{};
    std::atomic<std::size_t> next{0};
    on_ranks(2, [&](Communicator& comm) {
      comm.barrier();
      for (std::size_t i = 0; i < kCalls; ++i) {
        call(comm);
        ended[next++] = comm.rank();
      }
    });
    std::size_t twice = 0;
    for (std::size_t i = 1; i < ended.size(); ++i) twice += ended[i] == ended[i - 1] ? 1 : 0;
    return twice;
  };
  CHECK(repeats([](Communicator& comm) { comm.barrier(); }) < kCalls / 4);
  CHECK(repeats([](Communicator& comm) {
          float one_float = 1;
          comm.all_reduce(std::span(&one_float, 1), ReduceOp::sum);
        }) > kCalls / 2);
}

TEST_CASE("ranks that start on one core part, and keep their affinity") {
  if (comm::usable_cores() < 2) {
    WARN("skipped: it takes two cores");
    return;
  }
  cpu_set_t all, one;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  std::atomic<int> cores[2];
  std::atomic<bool> apart{false};
  on_ranks(2, [&](Communicator& comm) {
    ::sched_setaffinity(0, sizeof one, &one);
    comm.barrier();
    ::sched_setaffinity(0, sizeof all, &all);  // both stay where they are
    constexpr int kCalls = 300;                // about a millisecond, less than a tick of the kernel
    for (int call = 0; call < kCalls; ++call) {
      comm.barrier();
      cores[comm.rank()] = ::sched_getcpu();
      comm.barrier();
      if (comm.rank() == 0 && cores[0] != cores[1]) apart = true;
    }
    cpu_set_t after;
    ::sched_getaffinity(0, sizeof after, &after);
    if (!CPU_EQUAL(&after, &all)) throw std::runtime_error("the affinity mask has changed");
  });
  CHECK(apart);
}
