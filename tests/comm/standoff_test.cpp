// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in different things: a mismatch soon where that is certain, and nobody is accused of
// what may still end well.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::check_ended_well;
using test::code_of;
using test::contains;
using test::expect;
using test::fork_ranks;
using test::join_forked;
using test::sentence_of;
using test::thrown_by;

namespace {

#if defined(__has_feature)
constexpr bool kHasThreads =
    __has_feature(thread_sanitizer);  // a process of ThreadSanitizer's has one more, which is not known
#else
constexpr bool kHasThreads = false;
#endif

bool skips() {
  if (kHasThreads) WARN("skipped: a sanitizer's thread could be the program's");
  return kHasThreads;
}

constexpr auto kSoon = 3s;  // about 60 ms, on cores that others want too; the deadline is 600 s away

struct World {
  int ranks, per_node;
};
Options placed(const World& world, int rank) {
  Options options;
  options.node = fmt::format("node{}", rank / world.per_node);
  return options;
}

using Body = std::function<void(Communicator& comm)>;
void on_ranks(const World& world, const Body& body) {
  check_ended_well(fork_ranks(world.ranks, 60s, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, world.ranks, store, placed(world, rank));
    comm.barrier();
    body(comm);
  }));
}

// What the call throws, soon.
std::exception_ptr mismatch_of(const std::function<void()>& call) {
  const auto begun = std::chrono::steady_clock::now();
  const auto error = thrown_by(call);
  expect(std::chrono::steady_clock::now() - begun < kSoon, "it took too long");
  expect(code_of(error) == ErrorCode::mismatch, "it threw: " + sentence_of(error));
  return error;
}
void expect_says(const std::exception_ptr& error, const std::string& part) {
  expect(contains(sentence_of(error), part), "it says: " + sentence_of(error));
}
std::vector<int> culprits_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return thrown.culprits();
  }
}

}  // namespace

TEST_CASE("a collective on one rank where another receives from it is a mismatch soon") {
  if (skips()) return;
  const World world = GENERATE(World{2, 2}, World{2, 1}, World{4, 4}, World{4, 1}, World{4, 2});
  const int receiver = GENERATE(0, 1);
  INFO(world.ranks << " ranks, " << world.per_node << " on a node, rank " << receiver << " receives");
  const int sender = 1 - receiver;
  on_ranks(world, [&](Communicator& comm) {
    std::vector<float> data(4);
    const auto error = mismatch_of([&] {
      if (comm.rank() == receiver) return comm.recv(data, sender, 7);
      comm.all_reduce(data, ReduceOp::sum);
      comm.barrier();
    });
    expect_says(error,
                fmt::format("rank {} called recv of 4 f32 from rank {}, tag 7 where rank {} called all_reduce #2 "
                            "of 4 f32, sum, and each waits for the other",
                            receiver, sender, sender));
    const auto blamed = world.ranks == 2 ? std::vector{0, 1} : std::vector{receiver};
    expect(culprits_of(error) == blamed, "others are to blame: " + sentence_of(error));
  });
}

TEST_CASE("so is one on a rank to which another sends more than it takes unasked, and a message with another tag") {
  if (skips()) return;
  const World world = GENERATE(World{2, 2}, World{2, 1});
  const bool sends = GENERATE(true, false);
  on_ranks(world, [&](Communicator& comm) {
    std::vector<float> data(sends ? 4 << 20 : 1);
    const auto error = mismatch_of([&] {
      if (comm.rank() == 0 && !sends) comm.send(data, 1, 3);
      if (comm.rank() == 0) return comm.broadcast(data, 1);
      sends ? comm.send(data, 0, 5) : comm.recv(data, 0, 5);
    });
    expect_says(error, fmt::format("rank 1 called {} rank 0, tag 5 where rank 0 called broadcast #2",
                                   sends ? "send of 4194304 f32 to" : "recv of 1 f32 from"));
  });
}

TEST_CASE("so is one of a communicator where another receives, or calls one, on its parent or child") {
  if (skips()) return;
  const bool child_waits = GENERATE(true, false), receives = GENERATE(true, false);
  on_ranks({3, 3}, [&](Communicator& parent) {
    Communicator child = parent.split(0, -parent.rank());  // whose ranks are 2, 1, 0
    Communicator& with_collective = child_waits ? child : parent;
    Communicator& other = child_waits ? parent : child;
    const auto error = mismatch_of([&] {
      int value = 0;
      if (parent.rank() != 2) return with_collective.barrier();
      receives ? other.recv(std::span(&value, 1), child_waits ? 0 : 2) : other.barrier();
    });
    expect_says(error, " of another communicator");
    expect_says(error, ", and each waits for the other");
    if (parent.rank() == 2) expect_says(error, receives ? "called recv of 1 i32" : "called barrier");
  });
}

TEST_CASE("who may still end what another waits in is not accused") {
  const World world = GENERATE(World{2, 2}, World{2, 1}, World{3, 1});
  INFO(world.ranks << " ranks, " << world.per_node << " on a node");
  on_ranks(world, [&](Communicator& comm) {
    constexpr auto kLong = 400ms;  // than it takes to be sure
    std::vector<int> data(1);
    if (comm.rank() == 0) {  // a thread of the program's sends what another rank waits for
      std::jthread sender([&] {
        std::this_thread::sleep_for(kLong);
        comm.send(data, 1);
      });
      comm.barrier();
    } else {
      if (comm.rank() == 1) comm.recv(data, 0);
      comm.barrier();
    }
    if (comm.rank() == 1) {  // a thread of the receiver's process enters the collective
      std::jthread caller([&] {
        std::this_thread::sleep_for(kLong);
        comm.barrier();
      });
      comm.recv(data, 0);
    } else {
      comm.barrier();
      if (comm.rank() == 0) comm.send(data, 1);
    }
    if (comm.rank() == 1) {  // it does, once a callback has it
      std::atomic<bool> called{false};
      Work work = comm.async().recv(data, 2 % comm.world_size());
      work.on_done([&](std::exception_ptr) {
        comm.barrier();
        called = true;
        called.notify_all();
      });
      work.wait();
      called.wait(false);
    } else {
      if (comm.rank() == 2 % comm.world_size()) comm.send(data, 1);
      comm.barrier();
    }
    for (int i = 0; i < 200; ++i) {  // the message was on its way
      if (comm.rank() == 0) comm.send(data, 1, i);
      if (comm.rank() == 1) comm.recv(data, 0, i);
      comm.barrier();
    }
    comm.check();
  });
}
