// SPDX-License-Identifier: Apache-2.0
// The barrier that says who is missing: the others go on, and so does the one that comes late.
#include <fmt/format.h>

#include <csignal>
#include <string>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::check_ended_well;
using test::code_of;
using test::expect;
using test::fork_ranks;
using test::join_forked;
using test::sentence_of;
using test::thrown_by;

namespace {

constexpr int kRanks = 4;

// On one node, on one each, or two on each.
Options placed(int ranks_per_node, int rank) {
  Options options;
  options.node = fmt::format("node{}", rank / ranks_per_node);
  return options;
}

void say(Store& store, std::string_view what) { store.set(what, {}); }
void await(Store& store, std::string_view what) { store.get(what, std::chrono::steady_clock::now() + 30s); }

void check_usable(Communicator& comm) {
  comm.monitored_barrier(30s);
  int sum = comm.rank();
  comm.all_reduce(std::span(&sum, 1), ReduceOp::sum);
  expect(sum == kRanks * (kRanks - 1) / 2, fmt::format("the sum is {}", sum));
  comm.check();
}

std::string refusal(Communicator& comm, std::chrono::milliseconds timeout, bool waits_for_all = false) {
  const auto error = thrown_by([&] { comm.monitored_barrier(timeout, waits_for_all); });
  expect(code_of(error) == ErrorCode::timeout, "it threw: " + sentence_of(error));
  return sentence_of(error);
}
void expect_says(const std::string& sentence, const std::string& part) {
  expect(sentence.find(part) != std::string::npos, "it says: " + sentence);
}

}  // namespace

TEST_CASE("a monitored barrier names the rank that is missing, and everybody goes on") {
  const int ranks_per_node = GENERATE(4, 1, 2);
  check_ended_well(fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, placed(ranks_per_node, rank));
    comm.monitored_barrier();
    if (rank == 2) {
      for (const int other : {0, 1, 3}) await(*store, fmt::format("told {}", other));
      expect_says(refusal(comm, 30s), "monitored barrier #2: rank 2 did not come");
    } else {
      expect_says(refusal(comm, 300ms), "monitored barrier #2: rank 2 did not come");
      say(*store, fmt::format("told {}", rank));
    }
    check_usable(comm);
  }));
}

TEST_CASE("a monitored barrier that waits for all names all that are missing") {
  const int ranks_per_node = GENERATE(4, 2);
  check_ended_well(fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, placed(ranks_per_node, rank));
    if (rank == 1 || rank == 3) await(*store, "told");
    const std::string sentence = refusal(comm, 300ms, true);
    if (rank == 0) expect_says(sentence, "ranks 1, 3 did not come within 0.3 s");
    if (rank == 2) expect_says(sentence, "rank 1 did not come in time, nor did 1 more");
    if (rank == 0) say(*store, "told");
    check_usable(comm);
  }));
}

TEST_CASE("when rank 0 is missing in a monitored barrier, it learns later that others gave up") {
  const int ranks_per_node = GENERATE(4, 2);
  check_ended_well(fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, placed(ranks_per_node, rank));
    if (rank == 0) {
      for (const int other : {1, 2, 3}) await(*store, fmt::format("told {}", other));
      expect_says(refusal(comm, 30s), "gave up before rank 0 did");
    } else {
      const std::string sentence = refusal(comm, 100ms);
      expect_says(sentence, "rank");
      expect_says(sentence, " 0");
      say(*store, fmt::format("told {}", rank));
    }
    check_usable(comm);
  }));
}

TEST_CASE("a rank that dies before a monitored barrier is lost for good") {
  const int ranks_per_node = GENERATE(4, 2);
  const auto ranks = fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, placed(ranks_per_node, rank));
    const auto meet = [&] { comm.barrier(); };  // which rank 3 may leave, and die, before the others have left it
    if (rank == 3) {
      meet();
      ::raise(SIGKILL);
    }
    thrown_by(meet);
    for (int i = 0; i < 2; ++i)
      expect(code_of(thrown_by([&] { comm.monitored_barrier(60s); })) == ErrorCode::peer_lost, "it is not lost");
    expect(code_of(thrown_by([&] { comm.barrier(); })) == ErrorCode::peer_lost, "the communicator goes on");
  });
  for (int r = 0; r < 3; ++r) CHECK(ranks[static_cast<std::size_t>(r)].failure == "");
  CHECK(ranks[3].signal == SIGKILL);
}

TEST_CASE("a monitored barrier takes deadlines that are some, and runs behind what was started before") {
  test::on_ranks(2, [](Communicator& comm) {
    expect(sentence_of(thrown_by([&] { comm.monitored_barrier(-1ms); })).find("monitored_barrier: timeout of -1") == 0,
           "it took -1 ms");
    std::vector<int> data(100'000, comm.rank());
    comm.async().broadcast(data, 1);
    comm.monitored_barrier(std::chrono::milliseconds::max());
    expect(data.back() == 1, "it overtook an asynchronous call");
  });
}
