// SPDX-License-Identifier: Apache-2.0
// What FIFO kernels do when ranks abort, are missing or disagree: they end, and the first fault of the rank says who.
#include <rondo/dtype.hpp>

#include "kernels/device/kernels.hpp"
#include "tests/kernels/device/fifo_case.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {
namespace {

using device::FaultKind;
using device::Protocol;

constexpr Protocol kProtocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};
constexpr std::uint64_t kSecond = 1'000'000'000;

int find_row(kernels::Pattern pattern, std::string_view name) { return kernels::find_algorithm(pattern, name); }

class Fixture {
 public:
  Fixture(const FifoCase& c, std::uint64_t timeout_ns = kSecond)
      : world({.ranks = c.ranks, .blocks = c.channels, .threads = c.threads, .fifo = c.fifo}),
        buffers(c),
        kernel_(cuda::soft_kernels().fifo[static_cast<int>(c.protocol)]) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      launches.push_back(world.launch(rank));
      launches.back().timeout_ns = timeout_ns;
    }
    buffers.fill(1);
    buffers.add_to(launches);
  }
  // The clock jumps on when everybody waits, so that deadlines come without waiting for them.
  std::string run(std::uint64_t clock_ns = 10 * kSecond) { return world.run(kernel_, launches, options(clock_ns)); }
  template <class F>
  std::string run_one_by_one(F&& next) {
    simt::Options often = options(10 * kSecond);
    often.pause_per_10000 = 1000;
    return world.run_one_by_one(kernel_, launches, often, next);
  }
  std::string run_on_threads_and_abort() {
    return world.run_on_threads(kernel_, launches, [&] {
      for (const device::Launch& launch : launches) {
        __atomic_store_n(&world.page(launch.team->rank).abort, 1U, __ATOMIC_RELEASE);
      }
    });
  }
  const device::Fault& fault(int rank) { return world.page(rank).fault; }

  DeviceWorld world;
  FifoBuffers buffers;
  std::vector<device::Launch> launches;

 private:
  static simt::Options options(std::uint64_t clock_ns) {
    simt::Options options;
    options.explore = true;
    options.policy = simt::Policy::random;
    options.idle_clock_ns = clock_ns;
    return options;
  }

  const void* kernel_;
};

FifoCase ring_case(Protocol protocol, int ranks = 3) {
  return {.row = find_row(kernels::Pattern::all_reduce, "ring"),
          .protocol = protocol,
          .ranks = ranks,
          .count = 500,
          .channels = 2,
          .fifo = {2, 512},
          .threads = 32};
}

TEST_CASE("a kernel launched after an abort drains, and so do all later ones") {
  for (const Protocol protocol : kProtocols) {
    Fixture f(ring_case(protocol));
    for (int rank = 0; rank < 3; ++rank) f.world.page(rank).abort = 1;
    f.launches.erase(f.launches.begin() + 1);  // so that the others wait: who need not looks at no abort word
    CHECK(f.run(0) == "");                     // the clock stands still, so nothing but the abort can have ended it
    for (const int rank : {0, 2}) {
      CHECK(f.fault(rank).is_set == 1);
      CHECK(f.fault(rank).kind == FaultKind::aborted);
      CHECK(f.world.header(rank).failed == 1);
      f.world.page(rank).abort = 0;  // the region remembers
    }
    CHECK(f.run(0) == "");
    CHECK(f.buffers.check() != "");
  }
}

TEST_CASE("an abort ends kernels that wait") {
  for (const Protocol protocol : kProtocols) {
    Fixture f(ring_case(protocol), 600 * kSecond);
    f.launches.erase(f.launches.begin() + 1);  // rank 1 never comes
    CHECK(f.run_on_threads_and_abort() == "");
    CHECK(f.fault(0).kind == FaultKind::aborted);
    CHECK(f.fault(2).kind == FaultKind::aborted);
  }
}

TEST_CASE("a deadline names the missing peer, the channel and the step, and the host hears of it before") {
  for (const Protocol protocol : kProtocols) {
    FifoCase c = ring_case(protocol);
    c.row = find_row(kernels::Pattern::broadcast, "ring");
    c.root = 2;
    Fixture f(c);
    f.launches.pop_back();
    CHECK(f.run() == "");
    CHECK(f.fault(0).is_set == 1);
    CHECK(f.fault(0).kind == FaultKind::timeout);
    CHECK(f.fault(0).peer == 2);
    CHECK(f.fault(0).step == 0);
    CHECK(f.fault(0).protocol == protocol);
    CHECK(!f.fault(0).window);
    CHECK((f.fault(0).channel == 0 || f.fault(0).channel == 1));
    CHECK(f.fault(0).mine.sequence == 1);
    CHECK(f.fault(0).mine.count == 500);
    CHECK(f.fault(1).peer == 0);  // it waits for who waits
    CHECK(f.world.page(0).told == 1);
    CHECK(f.world.page(0).waiting_for == 2);
    CHECK(f.world.page(0).waiting.sequence == 1);
    CHECK(f.world.page(0).abort == 1);
  }
}

// Rank 1 has filled its slots at rank 2, and can pass nothing on to it; once rank 2 has taken that, it is rank 0 whose
// data are missing.
TEST_CASE("the host hears of it when a kernel waits for another rank than before") {
  for (const Protocol protocol : kProtocols) {
    FifoCase c = ring_case(protocol);
    c.row = find_row(kernels::Pattern::broadcast, "ring");
    c.count = 10;
    c.channels = 1;
    c.root = 1;
    Fixture f(c);  // a slot; and another
    f.buffers.add_to(f.launches, 1);
    c.root = 0;
    FifoBuffers last(c);
    last.fill(2);
    last.add_to(f.launches, 2);
    f.launches.erase(f.launches.begin());  // rank 0 never comes
    std::vector<int> told;
    CHECK(f.run_one_by_one([&] {
      device::HostPage& page = f.world.page(1);
      if (__atomic_load_n(&page.told, __ATOMIC_ACQUIRE) == 0) return false;
      told.push_back(page.waiting_for);
      __atomic_store_n(&page.told, 0U, __ATOMIC_RELEASE);
      return true;
    }) == "");
    CHECK(told == std::vector<int>{2, 0});
    CHECK(f.fault(1).kind == FaultKind::timeout);
    CHECK(f.fault(1).peer == 0);
  }
}

TEST_CASE("ranks that disagree on a field find out, and both signatures are known") {
  for (const Protocol protocol : kProtocols) {
    for (const auto field :
         {&device::DeviceSignature::count, &device::DeviceSignature::kind, &device::DeviceSignature::shape}) {
      FifoCase c = ring_case(protocol, 2);
      c.channels = 1;
      Fixture f(c);
      f.launches[1].operation[0].signature.*field += 1000;
      CHECK(f.run() == "");
      int found = 0;
      for (int rank = 0; rank < 2; ++rank) {
        if (f.fault(rank).kind != FaultKind::mismatch) continue;
        ++found;
        CHECK(f.fault(rank).peer == 1 - rank);
        const auto& mine = f.launches[static_cast<std::size_t>(rank)].operation[0].signature;
        const auto& theirs = f.launches[static_cast<std::size_t>(1 - rank)].operation[0].signature;
        CHECK(f.fault(rank).mine.sequence == 1);
        CHECK(f.fault(rank).mine.*field == mine.*field);
        CHECK(f.fault(rank).theirs.sequence == 1);
        CHECK(f.fault(rank).theirs.*field == theirs.*field);
      }
      CHECK(found > 0);
    }
  }
}

TEST_CASE("a fold finds the peer that does something else also while it waits for another one") {
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
    FifoCase c = ring_case(protocol, 3);
    c.row = find_row(kernels::Pattern::all_reduce, "one_shot");
    c.channels = 1;
    Fixture f(c);
    f.launches[1].operation[0].signature.count += 1000;
    f.launches.pop_back();  // rank 2 never comes
    CHECK(f.run(0) == "");  // the clock stands still: it is not for having waited that they look
    for (int rank = 0; rank < 2; ++rank) {
      if (f.fault(rank).kind == FaultKind::mismatch) CHECK(f.fault(rank).peer == 1 - rank);
    }
    CHECK((f.fault(0).kind == FaultKind::mismatch || f.fault(1).kind == FaultKind::mismatch));
  }
}

TEST_CASE("ranks that wait for each other in different collectives find out from their histories") {
  for (const Protocol protocol : kProtocols) {
    FifoCase c = ring_case(protocol, 2);
    c.row = find_row(kernels::Pattern::reduce, "ring");
    Fixture f(c);
    for (std::size_t rank = 0; rank < 2; ++rank) {  // each thinks it is the root, so nobody sends
      f.launches[rank].operation[0].root = static_cast<int>(rank);
      f.launches[rank].operation[0].signature.shape = rank;
      f.launches[rank].operation[0].output = f.launches[0].operation[0].output;
    }
    CHECK(f.run(kSecond / 2) == "");  // before the deadline
    for (int rank = 0; rank < 2; ++rank) {
      const bool first = f.fault(rank).kind == FaultKind::mismatch;
      CHECK((first || f.fault(1 - rank).kind == FaultKind::mismatch));
      if (!first) continue;
      CHECK(f.fault(rank).mine.shape == static_cast<std::uint64_t>(rank));
      CHECK(f.fault(rank).theirs.shape == static_cast<std::uint64_t>(1 - rank));
    }
  }
}

TEST_CASE("a rank that is one collective ahead is told what it should have done before") {
  for (const Protocol protocol : kProtocols) {
    FifoCase c = ring_case(protocol, 2);
    c.row = find_row(kernels::Pattern::broadcast, "ring");
    c.channels = 1;
    c.count = 10;
    Fixture f(c);  // rank 0 sends as the root and is done; rank 1 has called something else
    f.launches[1].operation[0].signature.kind = 99;
    f.launches[0].operation[1] = f.launches[0].operation[0];
    f.launches[0].operations = 2;
    CHECK(f.run() == "");
    CHECK(f.fault(1).kind == FaultKind::mismatch);
    CHECK(f.fault(1).mine.kind == 99);
    CHECK(f.fault(1).theirs.sequence == 1);
    CHECK(f.fault(1).theirs.kind == static_cast<std::uint64_t>(c.row));
  }
}

TEST_CASE("pairs of all_to_all that disagree on their count find out, also where one of them has nothing") {
  for (const Protocol protocol : kProtocols) {
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{7}}) {
      FifoCase c = ring_case(protocol, 3);
      c.row = find_row(kernels::Pattern::all_to_all, "pairwise");
      c.variable_counts = true;
      c.count = 20;
      Fixture f(c);
      f.launches[2].counts[device::kMaxRanks + 1] = count;  // rank 2 expects that of rank 1
      CHECK(f.run() == "");
      CHECK(f.fault(2).kind == FaultKind::mismatch);
      CHECK(f.fault(2).peer == 1);
      if (protocol == Protocol::simple) {
        CHECK(f.fault(2).mine.count == count);
        CHECK(f.fault(2).theirs.count == f.launches[1].counts[2]);
      }
    }
  }
}

}  // namespace
}  // namespace rondo::test
