// SPDX-License-Identifier: Apache-2.0
// Calls that return before the others have come, and that nobody else made: the next meeting, check() or at last the
// communicator's end says so.
#include <fmt/format.h>

#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/comm/misuse/logged.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/queue_transport.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int kRanks = 3;

// `body` of every rank, in a thread each; what each threw.
template <class Body>
std::vector<std::exception_ptr> run(const std::string& transport, Body body) {
  if (transport == "threads") return run_ranks(kRanks, {}, body);
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      errors[static_cast<std::size_t>(rank)] = thrown_by([&] {
        Bootstrap bootstrap;
        bootstrap.rank = rank;
        bootstrap.world_size = kRanks;
        bootstrap.store = store;
        if (transport == "queue") bootstrap.transports = &queue_before_all();
        const std::string node = transport == "shm" ? "" : fmt::format("node{}", rank);
        Communicator comm = make_communicator(std::move(bootstrap), {.node = node});
        body(comm);
      });
    });
  }
  threads.clear();
  return errors;
}

// Three ranks that each take themselves, or the next one, for the root of a short call. All return.
const std::vector<std::pair<std::string, void (*)(Communicator&)>>& lonely_calls() {
  static const std::vector<std::pair<std::string, void (*)(Communicator&)>> calls = {
      {"broadcast",
       [](Communicator& comm) {
         std::array data{1, 2};
         comm.broadcast(data, comm.rank());
       }},
      {"scatter",
       [](Communicator& comm) {
         std::array<int, kRanks> data{};
         int own = 0;
         comm.scatter(data, std::span(&own, 1), comm.rank());
       }},
      {"broadcast, async",
       [](Communicator& comm) {
         std::array data{1, 2};
         comm.async().broadcast(data, comm.rank()).wait();
       }},
      {"broadcast, in a group",
       [](Communicator& comm) {
         std::array data{1, 2};
         auto group = comm.group();
         group.broadcast(data, comm.rank());
         group.end();
       }},
      {"gather",
       [](Communicator& comm) {
         const std::array own{1};
         std::array<int, kRanks> all{};
         comm.gather(own, all, (comm.rank() + 1) % kRanks);
       }},
      {"reduce",
       [](Communicator& comm) {
         const std::array own{1};
         std::array<int, 1> all{};
         comm.reduce(own, all, ReduceOp::sum, (comm.rank() + 1) % kRanks);
       }},
  };
  return calls;
}

void good_calls(Communicator& comm) {
  std::array data{1, 2};
  std::array<int, kRanks> all{};
  comm.all_reduce(data, ReduceOp::sum);
  comm.gather(std::array{comm.rank()}, all, 1);
  const std::array one{1};
  auto group = comm.group();
  group.send(one, (comm.rank() + 1) % kRanks);
  int got = 0;
  group.recv(std::span(&got, 1), (comm.rank() + kRanks - 1) % kRanks);
  group.end();
  comm.broadcast(data, 0);
}

}  // namespace

TEST_CASE("ranks that took different roots hear of it in the next meeting") {
  const std::string transport = GENERATE("threads", "shm", "tcp", "queue");
  for (const auto& lonely : lonely_calls()) {
    const auto call = lonely.second;
    INFO(lonely.first << " over " << transport);
    const auto errors = run(transport, [&](Communicator& comm) {
      good_calls(comm);
      call(comm);
      comm.barrier();
    });
    for (const auto& error : errors) {
      CHECK(code_of(error) == ErrorCode::mismatch);
      CHECK(contains(sentence_of(error), "disagree on the root"));
    }
  }
}

TEST_CASE("ranks that took different roots hear of it from check()") {
  const std::string transport = GENERATE("threads", "shm", "tcp", "queue");
  for (const auto& lonely : lonely_calls()) {
    const auto call = lonely.second;
    INFO(lonely.first << " over " << transport);
    std::barrier all_are_here(kRanks), all_have_returned(kRanks);
    const auto errors = run(transport, [&](Communicator& comm) {
      good_calls(comm);
      all_are_here.arrive_and_wait();
      const auto early = thrown_by([&] { call(comm); });  // who is told already need not look
      all_have_returned.arrive_and_wait();
      if (early) std::rethrow_exception(early);
      // Ranks elsewhere are told by whoever looks, and look when they are told.
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (std::chrono::steady_clock::now() < until) comm.check();
    });
    for (const auto& error : errors) {
      CHECK(code_of(error) == ErrorCode::mismatch);
      CHECK(contains(sentence_of(error), "disagree on the root"));
    }
  }
}

TEST_CASE("ranks that took different roots and end say so in the log") {
  const std::string transport = GENERATE("threads", "shm", "tcp", "queue");
  for (const auto& lonely : lonely_calls()) {
    const auto call = lonely.second;
    INFO(lonely.first << " over " << transport);
    std::barrier all_are_here(kRanks), all_have_returned(kRanks);
    std::vector<std::exception_ptr> errors;
    const std::string text = logged([&] {
      errors = run(transport, [&](Communicator& comm) {
        good_calls(comm);
        all_are_here.arrive_and_wait();
        const auto early = thrown_by([&] { call(comm); });
        all_have_returned.arrive_and_wait();
        if (early) std::rethrow_exception(early);
      });
    });
    const bool told = code_of(errors[0]) == ErrorCode::mismatch || code_of(errors[1]) == ErrorCode::mismatch ||
                      code_of(errors[2]) == ErrorCode::mismatch;
    CHECK((told || contains(text, "destroyed its communicator, and rank")));
    CHECK((told || contains(text, "disagree on the root")));
  }
}

TEST_CASE("a message that nobody receives, and a broadcast that nobody joins, are in the log at the end") {
  const std::string transport = GENERATE("threads", "shm", "tcp", "queue");
  INFO(transport);
  std::barrier all_have_returned(kRanks);
  const std::string unread = logged([&] {
    rethrow(run(transport, [&](Communicator& comm) {
      good_calls(comm);
      if (comm.rank() == 0) {
        const std::array values{1, 2, 3};
        auto group = comm.group();
        group.send(values, 1);
        group.end();
      }
      all_have_returned.arrive_and_wait();
    }));
  });
  CHECK(contains(unread, "rank 1 destroyed its communicator, and rank 0 had sent it send #2 of 3 i32 that it never"));
  const std::string unasked = logged([&] {  // it has been looked at, and its tag was another
    rethrow(run(transport, [](Communicator& comm) {
      std::array values{1, 2, 3};
      if (comm.rank() == 0) {
        auto group = comm.group();
        group.send(values, 1, 9);
        group.send(values, 1);
        group.end();
      }
      if (comm.rank() == 1) comm.recv(values, 0);
      comm.barrier();
    }));
  });
  CHECK(contains(unasked, "rank 1 destroyed its communicator, and rank 0 had sent it send #1 of 3 i32, tag 9 that it"));
  const std::string to_itself = logged([&] {
    rethrow(run(transport, [](Communicator& comm) {
      if (comm.rank() == 2) comm.send(std::array{1, 2, 3}, 2, 4);
      comm.barrier();
    }));
  });
  CHECK(contains(to_itself,
                 "rank 2 destroyed its communicator, and it had sent itself send #1 of 3 i32, tag 4 that it never"));
  const std::string alone = logged([&] {
    rethrow(run(transport, [](Communicator& comm) {
      good_calls(comm);
      std::array data{1};
      comm.barrier();
      if (comm.rank() == 0) comm.broadcast(data, 0);
    }));
  });
  CHECK(contains(alone, "broadcast #5 of 1 i32, root 0"));
}

TEST_CASE("ranks that called the same leave nothing") {
  const std::string transport = GENERATE("threads", "shm", "tcp", "queue");
  INFO(transport);
  CHECK(logged([&] {
          rethrow(run(transport, [](Communicator& comm) {
            good_calls(comm);
            comm.check();
            auto half = comm.split(comm.rank() % 2, 0);
            half.barrier();
            good_calls(comm);
          }));
        }) == "");
}
