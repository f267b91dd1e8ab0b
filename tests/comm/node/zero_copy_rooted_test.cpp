// SPDX-License-Identifier: Apache-2.0
// Copies from a root or to one over memory that peers reach, and blocks of two ranks that differ.
#include <array>
#include <atomic>
#include <thread>

#include "tests/comm/node/zero_copy_worlds.hpp"
#include "tests/support/few_cores.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

// Blocks from a root or to it, whose values tell the call and the rank. `whole` is what the root has for all; what
// others have is their own. True: they went direct.
bool check_rooted(Communicator& comm, Collective collective, std::span<float> whole, int call, int root = 1) {
  const std::size_t count = whole.size() / as_size(comm.world_size());
  const auto value = [call](int rank) { return static_cast<float>(call * 16 + rank); };
  const auto block = [&](int rank) { return whole.subspan(as_size(rank) * count, count); };
  const auto check = [&](std::span<const float> values, int rank) {
    const bool right = std::ranges::all_of(values, [&](float found) { return found == value(rank); });
    expect(right, fmt::format("{}, call {}, rank {}'s block", name_of(collective), call, rank));
  };
  const bool at_root = comm.rank() == root, gathers = collective == Collective::gather;
  std::vector<float> own(count, gathers ? value(comm.rank()) : -1);
  for (int rank = 0; rank < comm.world_size() && at_root; ++rank)
    std::ranges::fill(block(rank), gathers ? -1 : value(rank));
  if (collective == Collective::scatter) {
    comm.scatter(std::span<const float>(whole), std::span(own), root);
    check(own, comm.rank());
  } else if (gathers) {
    comm.gather(std::span<const float>(own), whole, root);
    for (int rank = 0; rank < comm.world_size() && at_root; ++rank) check(block(rank), rank);
  } else {
    comm.broadcast(at_root ? block(0) : std::span(own), root);
    check(at_root ? block(0) : std::span(own), 0);
  }
  return went_direct(comm);
}

}  // namespace

TEST_CASE("copies from a root or to one by ranks that share cores are made in place when they are not short") {
  const FewCores two(2);
  const int world = GENERATE(2, 3);
  check_all(Kind::shm, world, {}, [world](Communicator& comm) {
    constexpr std::size_t kLong = (8 << 10) / sizeof(float);
    const auto window = comm.allocate<float>(3 * kLong), other = comm.allocate<float>(3 * kLong);
    const auto check = [&](Collective collective, std::size_t count, bool direct) {
      Shape shape(collective, ReduceOp::sum, comm.rank(), world, count);
      const bool gathers = collective == Collective::gather;
      shape.run(comm, gathers ? other.data() : window.data(), gathers ? window.data() : other.data());
      expect(went_direct(comm) == direct, fmt::format("{} of {} went the other way", name_of(collective), count));
    };
    const bool crowded = world > static_cast<int>(allowed_cores().size());
    for (const Collective collective : {Collective::broadcast, Collective::gather, Collective::scatter}) {
      const std::size_t blocks = collective == Collective::broadcast ? 1 : as_size(world);
      if (crowded) check(collective, (kLong - 64) / blocks, false);
      check(collective, (kLong + 64) / blocks, true);
    }
    if (crowded) check(Collective::reduce, 2 * kLong - 64, false);
    check(Collective::reduce, 2 * kLong + 64, true);
  });
}

TEST_CASE("who moves from or to a root waits for the root alone, wherever its buffer lies this time") {
  const FewCores two(2);
  const Collective collective = GENERATE(Collective::scatter, Collective::gather, Collective::broadcast);
  std::atomic<int> left{0};  // calls that rank 0 has left while rank 2 was waiting for that
  check_all(Kind::shm, 3, {}, [&](Communicator& comm) {
    constexpr std::size_t kWhole = 3 * (256 << 10) / sizeof(float);
    const auto window = comm.allocate<float>(kWhole);
    std::vector<float> ordinary(kWhole);
    int call = 0;
    expect(check_rooted(comm, collective, window.span(), ++call), "the first call went the other way");
    for (int waited = 1; waited <= 5; ++waited) {
      const auto until = std::chrono::steady_clock::now() + 20s;
      while (comm.rank() == 2 && left.load() < waited) {
        expect(std::chrono::steady_clock::now() < until, "rank 0 waits for rank 2");
        std::this_thread::yield();
      }
      expect(check_rooted(comm, collective, window.span(), ++call), "it went the other way");
      if (comm.rank() == 1) expect(left.load() == waited, "the root did not wait for all");
      if (comm.rank() == 0) ++left;
    }
    expect(!check_rooted(comm, collective, ordinary, ++call), "ordinary memory was used in place");
    int misses = 0;
    while (misses < 3 && !check_rooted(comm, collective, window.span(), ++call)) ++misses;
    expect(misses < 3, "calls still go the other way");
    for (int turn = 0; turn < 60; ++turn) {  // also from root to root
      const bool in_window = turn >= 30 || turn % 5 != 0;
      check_rooted(comm, collective, in_window ? window.span() : std::span(ordinary), ++call, turn / 2 % 3);
    }
  });
}

TEST_CASE("two ranks copy blocks that differ between windows, whoever has more") {
  const auto counts = GENERATE(std::array<std::size_t, 2>{90'000, 20'000}, std::array<std::size_t, 2>{20'000, 90'000},
                               std::array<std::size_t, 2>{0, 50'001}, std::array<std::size_t, 2>{50'001, 0});
  check_all(Kind::shm, 2, reproducible(), [&](Communicator& comm) {
    const std::size_t total = counts[0] + counts[1], mine = counts[as_size(comm.rank())];
    const auto whole = comm.allocate<float>(total + 1), own = comm.allocate<float>(total + 1);
    const std::span<float> all = whole.span().first(total), block = own.span().first(mine);
    const auto value = [&](int call, std::size_t at) { return static_cast<float>(at * 8 + as_size(call)); };
    const std::size_t before = comm.rank() == 0 ? 0 : counts[0];
    for (int call = 0; call < 4; ++call) {
      const int root = call % 2;
      std::ranges::fill(all, -1.0F);
      for (std::size_t i = 0; i < mine; ++i) block[i] = value(call, before + i);
      comm.gather_v(std::span<const float>(block), all, counts, root);
      expect(went_direct(comm), "a gather_v was copied");
      for (std::size_t i = 0; i < total && comm.rank() == root; ++i)
        if (all[i] != value(call, i)) expect(false, fmt::format("gather_v, call {}, element {}", call, i));
      std::ranges::fill(all, -1.0F);
      comm.all_gather_v(std::span<const float>(block), all, counts);
      expect(went_direct(comm), "an all_gather_v was copied");
      for (std::size_t i = 0; i < total; ++i)
        if (all[i] != value(call, i)) expect(false, fmt::format("all_gather_v, call {}, element {}", call, i));
      std::ranges::fill(block, -1.0F);
      for (std::size_t i = 0; i < total; ++i) all[i] = value(call + 4, i);
      comm.scatter_v(std::span<const float>(all), block, counts, root);
      expect(went_direct(comm), "a scatter_v was copied");
      for (std::size_t i = 0; i < mine; ++i)
        if (block[i] != value(call + 4, before + i))
          expect(false, fmt::format("scatter_v, call {}, element {}", call, i));
    }
  });
}
