// SPDX-License-Identifier: Apache-2.0
// Two ranks write next where they were the last to read: whatever calls follow one another, and whoever is ahead,
// nobody finds in a place what was meant for somebody else.
#include <numeric>
#include <vector>

#include "tests/comm/stress/worlds.hpp"
#include "tests/package/random.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr std::size_t kRanks = 2;
using Values = std::vector<std::int32_t>;

// What rank `from` has for rank `to`, or for everybody, in that turn.
Values values(int turn, std::size_t from, std::size_t to, std::size_t count) {
  Values all(count);
  std::iota(all.begin(), all.end(), static_cast<std::int32_t>(from * 100'000'000 + to * 10'000'000) + 10'007 * turn);
  return all;
}
Values joined(Values first, const Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
Values sum(Values first, const Values& second, std::int32_t factor = 1) {
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = factor * (first[i] + second[i]);
  return first;
}

class Turn {
 public:
  // `shared` is the same on both ranks.
  Turn(Communicator& comm, int turn, consumer::Random shared)
      : comm_(comm), turn_(turn), me_(static_cast<std::size_t>(comm.rank())), peer_(1 - me_) {
    const std::size_t bits = shared.below(17);
    kind_ = shared.index(8), count_ = shared.below(std::size_t{1} << bits), root_ = shared.index(2);
    for (std::size_t& count : counts_) count = shared.below(count_ + 1);
  }

  void run() {
    const Values mine = values(turn_, me_, 0, count_), theirs = values(turn_, peer_, 0, count_);
    const Values blocks = joined(values(turn_, me_, 0, count_), values(turn_, me_, 1, count_));
    const Values for_me = values(turn_, me_, me_, count_), from_peer = values(turn_, peer_, me_, count_);
    Values one(count_, -1), two(2 * count_, -1);
    switch (kind_) {
      case 0:
        comm_.all_reduce(mine, one, ReduceOp::sum);
        return expect(one == sum(mine, theirs), "all_reduce");
      case 1:
        comm_.all_reduce(mine, one, ReduceOp::premul_sum(3));
        return expect(one == sum(mine, theirs, 3), "all_reduce of multiples");
      case 2:
        comm_.reduce_scatter(blocks, one, ReduceOp::premul_sum(5));
        return expect(one == sum(for_me, from_peer, 5), "reduce_scatter of multiples");
      case 3:
        comm_.all_gather(mine, two);
        return expect(two == (me_ == 0 ? joined(mine, theirs) : joined(theirs, mine)), "all_gather");
      case 4:
        comm_.all_to_all(blocks, two);
        return expect(two == (me_ == 0 ? joined(for_me, from_peer) : joined(from_peer, for_me)), "all_to_all");
      case 5:
        return exchange();
      case 6:
        comm_.reduce(mine, one, ReduceOp::premul_sum(2), root_);
        return expect(comm_.rank() != root_ || one == sum(mine, theirs, 2), "reduce");
      default:
        one = mine;
        comm_.broadcast(one, root_);
        return expect(one == (comm_.rank() == root_ ? mine : theirs), "broadcast");
    }
  }

 private:
  std::size_t count(std::size_t from, std::size_t to) const { return counts_[2 * from + to]; }
  void exchange() {
    const auto all = [&](auto block) { return joined(block(0), block(1)); };
    const Values sent = all([&](std::size_t to) { return values(turn_, me_, to, count(me_, to)); });
    const Values wanted = all([&](std::size_t from) { return values(turn_, from, me_, count(from, me_)); });
    const std::vector<std::size_t> to{count(me_, 0), count(me_, 1)}, from{count(0, me_), count(1, me_)};
    Values got(wanted.size(), -1);
    comm_.all_to_all_v(std::span<const std::int32_t>(sent), to, std::span(got), from);
    expect(got == wanted, "all_to_all_v");
  }

  Communicator& comm_;
  int turn_, kind_ = 0, root_ = 0;
  std::size_t me_, peer_, count_ = 0, counts_[kRanks * kRanks] = {};
};

}  // namespace

TEST_CASE("two ranks hand places over to each other, whatever calls follow one another") {
  static const std::uint32_t seed = rotating_seed();
  const Setting by_name("RONDO_ALGORITHM", "board");
  const std::string segment_bytes = GENERATE("65536", "1048576", "");  // places of a few KiB, and longer ones
  const Setting segment("RONDO_SEGMENT_BYTES", segment_bytes);
  const std::size_t most_cores = GENERATE(std::size_t{1}, FewCores::kAll);
  const FewCores cores(most_cores);
  INFO("segment " << segment_bytes << ", at most " << most_cores << " cores, seed " << seed);
  on_ranks(kRanks, [](Communicator& comm) {
    for (int turn = 0; turn < 1500; ++turn) Turn(comm, turn, consumer::Random(seed + std::uint64_t(turn))).run();
  });
}

TEST_CASE("two ranks sum in the same pieces though one of them works in place, and keeps more in its caches") {
  const Setting by_name("RONDO_ALGORITHM", "board");
  const std::size_t mebibytes = GENERATE(7U, 10U, 13U);
  INFO(mebibytes << " MiB");
  on_ranks(kRanks, [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    const std::size_t count = (mebibytes << 20) / sizeof(std::int32_t);
    const Values wanted = sum(values(0, 0, 0, count), values(0, 1, 0, count));
    Values mine = values(0, me, 0, count), other(count, -1);
    if (me == 0) {
      comm.all_reduce(mine, ReduceOp::sum);
    } else {
      comm.all_reduce(mine, other, ReduceOp::sum);
    }
    expect((me == 0 ? mine : other) == wanted, "all_reduce");
  });
}
