// SPDX-License-Identifier: Apache-2.0
// Rooted collectives among ranks that share memory: who needs nothing of the others does not wait for them, and what
// they disagree on is found all the same.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "comm/transport/memory.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/package/random.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int kRanks = 3, kRoot = 1;
const Options kPatient{.timeout = std::chrono::seconds(60)};

// Releases threads in a given order, without a collective; the call's own deadline ends a wait that is in vain.
class Gate {
 public:
  void open() {
    opened_ = true;
    opened_.notify_all();
  }
  void pass() const { opened_.wait(false); }

 private:
  std::atomic<bool> opened_{false};
};

void call(Communicator& comm, Collective collective, std::vector<int>& send, std::vector<int>& recv,
          std::size_t count) {
  comm.submit({.collective = collective,
               .send = send.data(),
               .recv = recv.data(),
               .count = count,
               .dtype = DataType::i32,
               .root = kRoot});
}

std::vector<int> numbers(int turn, int rank, std::size_t first, std::size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 100'000'000 * rank + 1'000'000 * turn + static_cast<int>(first));
  return all;
}

// A scatter_v whose root fills all rings, and at once a broadcast by another root, and an all_gather, in which every
// rank fills its own.
void fill_rings(Communicator& comm, int turn, consumer::Random random) {
  const int ranks = comm.world_size(), rank = comm.rank();
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
  for (std::size_t& count : counts) count = random.chance(20) ? 0 : random.below(20'001);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t before = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  const int root = random.index(ranks), other = random.index(ranks);
  const std::size_t shared = random.below(40'000), block = random.below(10'000);

  const std::vector<int> source = rank == root ? numbers(turn, root, 0, total) : std::vector<int>{};
  const std::vector<int> own = numbers(turn, rank, 0, block);
  std::vector<int> mine(counts[static_cast<std::size_t>(rank)], -1), all(block * counts.size(), -1);
  std::vector<int> values = rank == other ? numbers(turn, other, 7, shared) : std::vector<int>(shared, -1);
  comm.scatter_v(std::span<const int>(source), std::span(mine), counts, root);
  comm.broadcast(std::span(values), other);
  comm.all_gather(std::span<const int>(own), std::span(all));

  expect(mine == numbers(turn, root, before, mine.size()), "scatter_v");
  expect(values == numbers(turn, other, 7, shared), "broadcast");
  for (int r = 0; r < ranks; ++r) {
    const std::vector<int> theirs = numbers(turn, r, 0, block);
    expect(std::equal(theirs.begin(), theirs.end(), all.begin() + r * static_cast<std::ptrdiff_t>(block)),
           "all_gather");
  }
}

// Scatters on the heels of each other, in places longer than a third of a ring, by a root that waits for nothing else;
// into memory that nobody has touched, which is slow.
void scatter_at_once(Communicator& comm, int root, std::size_t block) {
  constexpr int kTurns = 6;
  const auto ranks = static_cast<std::size_t>(comm.world_size()), rank = static_cast<std::size_t>(comm.rank());
  std::vector<std::vector<int>> sent, received(kTurns);
  for (int turn = 0; turn < kTurns; ++turn) {
    sent.push_back(comm.rank() == root ? numbers(turn, root, 0, block * ranks) : std::vector<int>{});
  }
  std::vector<Mapping> recv;
  for (int turn = 0; turn < kTurns; ++turn) recv.push_back(map_anonymous(block * sizeof(int)));
  const auto at = [&](std::size_t turn) { return std::span(reinterpret_cast<int*>(recv[turn].data()), block); };
  for (std::size_t turn = 0; turn < kTurns; ++turn) comm.scatter(std::span<const int>(sent[turn]), at(turn), root);
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::vector<int> mine = numbers(static_cast<int>(turn), root, rank * block, block);
    expect(std::equal(mine.begin(), mine.end(), at(turn).begin()), "scatter");
  }
}

}  // namespace

TEST_CASE("a root that only gives, and ranks that only give to the root, wait for nobody") {
  const Setting by_name("RONDO_ALGORITHM", "board");  // buffers in place: all meet
  const auto collective = GENERATE(Collective::broadcast, Collective::scatter, Collective::reduce, Collective::gather);
  const auto count = GENERATE(std::size_t{1}, std::size_t{900}, std::size_t{2500});  // in the line, in cells, in rings
  if (collective == Collective::reduce && count == 2500) return;  // longer sums are shared out: everybody works
  const bool root_gives = collective == Collective::broadcast || collective == Collective::scatter;
  Gate gate;
  std::atomic<int> returned{0};
  const int givers = root_gives ? 1 : kRanks - 1;
  on_ranks(
      kRanks,
      [&](Communicator& comm) {
        const bool gives = (comm.rank() == kRoot) == root_gives;
        std::vector<int> send(kRanks * count), recv(kRanks * count, -1);
        std::iota(send.begin(), send.end(), 1000 * comm.rank());
        if (!gives) gate.pass();
        call(comm, collective, send, recv, count);
        if (gives && ++returned == givers) gate.open();
        if (gives) return comm.barrier();
        const int first = root_gives ? kRoot * 1000 : collective == Collective::gather ? 0 : 3000;
        const int offset = collective == Collective::scatter ? comm.rank() * static_cast<int>(count) : 0;
        expect(recv[0] == first + offset, "the first element");
        comm.barrier();
      },
      kPatient);
}

TEST_CASE("who gives to a root waits, one call after the other, for the root alone") {
  const auto collective = GENERATE(Collective::gather, Collective::reduce);
  const auto count = GENERATE(std::size_t{1}, std::size_t{200});  // in the line, behind it
  constexpr int kRounds = 100, kCalls = 3;
  std::vector<Gate> second(kRounds);
  on_ranks(
      kRanks,
      [&](Communicator& comm) {
        std::vector<int> send(count), recv(kRanks * count);
        for (int number = 0; number < kRounds * kCalls; ++number) {
          Gate& gate = second[static_cast<std::size_t>(number / kCalls)];
          if (comm.rank() == 2 && number % kCalls == 0) gate.pass();
          std::fill(send.begin(), send.end(), number);
          call(comm, collective, send, recv, count);
          if (comm.rank() == 0 && number % kCalls == 1) gate.open();
          const int expected = (collective == Collective::reduce ? kRanks : 1) * number;
          if (comm.rank() == kRoot) expect(recv[0] == expected && recv[count - 1] == expected, "what rank 0 gave");
        }
      },
      kPatient);
}

TEST_CASE("who settles its ring finds others there, or further") {
  const Setting by_name("RONDO_ALGORITHM", "board");  // buffers in place: all meet
  constexpr std::size_t kShort = 1, kInRings = 5000;
  constexpr int kRounds = 50;
  std::vector<Gate> gone_on(kRounds);
  on_ranks(
      kRanks,
      [&](Communicator& comm) {
        std::vector<int> send(kInRings), recv(kRanks * kInRings);
        for (int round = 0; round < kRounds; ++round) {
          Gate& gate = gone_on[static_cast<std::size_t>(round)];
          const auto broadcast = [&](std::size_t count) {
            std::fill(send.begin(), send.end(), round);
            call(comm, Collective::broadcast, send, recv, count);
            expect(recv[0] == round && recv[count - 1] == round, "broadcast");
          };
          broadcast(kShort);
          if (comm.rank() == 2) gate.pass();
          broadcast(kInRings);
          call(comm, Collective::gather, send, recv, kShort);  // rank 0 arrives where it did at the first broadcast
          if (comm.rank() == 0) gate.open();
        }
      },
      kPatient);
}

TEST_CASE("rooted calls one after the other, each with another root, sizes mixed") {
  on_ranks(4, [](Communicator& comm) {
    for (int turn = 0; turn < 400; ++turn) {
      const int root = turn % 4;
      std::vector<int> values(turn % 3 == 0 ? 3 : turn % 3 == 1 ? 700 : 20'000, comm.rank() == root ? turn : -1);
      comm.broadcast(std::span(values), root);
      expect(values.front() == turn && values.back() == turn, "broadcast");
      std::vector<int> sums(values.size());
      comm.reduce(std::span<const int>(values), std::span(sums), ReduceOp::sum, (root + 1) % 4);
      if (comm.rank() == (root + 1) % 4) expect(sums.front() == 4 * turn && sums.back() == 4 * turn, "reduce");
    }
  });
}

TEST_CASE("roots fill all rings, and every rank its own right after") {
  static const std::uint32_t seed = rotating_seed();
  const Setting by_name("RONDO_ALGORITHM", "board");
  const int ranks = GENERATE(2, 3, 5);
  const std::string segment_bytes = GENERATE("65536", "1048576", "");  // many windows, a few, one
  const Setting segment("RONDO_SEGMENT_BYTES", segment_bytes);
  INFO(ranks << " ranks, segment " << segment_bytes);
  on_ranks(
      ranks,
      [&](Communicator& comm) {
        for (int turn = 0; turn < 40; ++turn) fill_rings(comm, turn, consumer::Random(seed + std::uint64_t(turn)));
      },
      kPatient);
}

TEST_CASE("a root whose places are longer than a call may have in the rings waits for those who read them") {
  const Setting by_name("RONDO_ALGORITHM", "board");
  for (const std::size_t block : {70'000, 131'072, 200'000}) {
    on_ranks(
        8, [&](Communicator& comm) { scatter_at_once(comm, 3, block); }, kPatient);
  }
}

TEST_CASE("a disagreement that a root did not wait for reaches it in its next call") {
  const auto errors = run_ranks(kRanks, kPatient, [](Communicator& comm) {
    std::vector<int> values(comm.rank() == 2 ? 5 : 4);
    comm.broadcast(std::span(values), kRoot);
    comm.barrier();
  });
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find("rank 2") != std::string::npos);
    CHECK(sentence_of(error).find("broadcast #1") != std::string::npos);
  }
}
