// SPDX-License-Identifier: Apache-2.0
// The same on devices, whose kernels end before others' have come wherever data goes through links: calls that nobody
// else made are told by the next meeting, by check(), or at last at the communicator's end.
#include <fmt/format.h>

#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/device.hpp>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/comm/misuse/logged.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 6;

// "windows": ranks are threads, and all of a collective meet. "links": data goes from one to the next instead. "mixed":
// it does so in a broadcast, and a barrier brings all together. "nodes": one for each rank.
template <class Body>
std::vector<std::exception_ptr> run(const std::string& place, Body body) {
  Options options{.device = device_under_test(), .timeout = 60s};
  const Setting protocol("RONDO_PROTOCOL", place == "links" ? "simple" : "");
  const Setting algorithm("RONDO_ALGORITHM", place == "mixed" ? "ring" : "");
  if (place != "nodes") return run_ranks(kRanks, options, body);
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank, own = options]() mutable {
      errors[static_cast<std::size_t>(rank)] = thrown_by([&] {
        Bootstrap bootstrap;
        bootstrap.rank = rank;
        bootstrap.world_size = kRanks;
        bootstrap.store = store;
        own.node = fmt::format("node{}", rank);
        own.device.index = rank;
        Communicator comm = make_communicator(std::move(bootstrap), own);
        body(comm);
      });
    });
  }
  threads.clear();
  return errors;
}

struct Data {
  explicit Data(Communicator& comm) : one(comm.device(), kCount), all(comm.device(), kRanks * kCount) {}
  DeviceArray<std::int32_t> one, all;
};

struct LonelyCall {
  std::string name;
  void (*call)(Communicator&, Data&);
};
const std::vector<LonelyCall>& lonely_calls() {
  static const std::vector<LonelyCall> calls = {
      {"broadcast", [](Communicator& comm, Data& data) { comm.broadcast(data.one.span(), comm.rank()); }},
      {"scatter", [](Communicator& comm, Data& data) { comm.scatter(data.all.span(), data.one.span(), comm.rank()); }},
      {"broadcast, async",
       [](Communicator& comm, Data& data) { comm.async().broadcast(data.one.span(), comm.rank()).wait(); }},
      {"broadcast, in a group",
       [](Communicator& comm, Data& data) {
         auto group = comm.group();
         group.broadcast(data.one.span(), comm.rank());
         group.end();
       }},
      {"several broadcasts",
       [](Communicator& comm, Data& data) {
         for (int i = 0; i < 3; ++i) comm.broadcast(data.one.span(), (comm.rank() + i) % 2);
       }},
  };
  return calls;
}

void good_calls(Communicator& comm, Data& data) {
  comm.all_reduce(data.one.span(), ReduceOp::sum);
  comm.gather(data.one.span(), data.all.span(), 1);
  auto group = comm.group();
  group.send(data.one.span(), (comm.rank() + 1) % kRanks);
  group.recv(data.all.span().first(kCount), (comm.rank() + kRanks - 1) % kRanks);
  group.end();
  comm.broadcast(data.one.span(), 0);
  comm.synchronize();
}

// One call for each rank, while all are there.
class AllAtOnce {
 public:
  // Throws when all have returned what this rank was told in it.
  void operator()(Communicator& comm, Data& data, const LonelyCall& lonely) {
    good_calls(comm, data);
    here_.arrive_and_wait();
    const auto early = thrown_by([&] {
      lonely.call(comm, data);
      comm.synchronize();
    });
    returned_.arrive_and_wait();
    if (early) std::rethrow_exception(early);
  }

 private:
  std::barrier<> here_{kRanks}, returned_{kRanks};
};

void check_roots_differ(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), "disagree on the root"));
  }
}

}  // namespace

TEST_CASE("on devices, ranks that took different roots hear of it in the next meeting") {
  const std::string place = GENERATE("windows", "links", "mixed", "nodes");
  for (const LonelyCall& lonely : lonely_calls()) {
    INFO(lonely.name << ", " << place);
    check_roots_differ(run(place, [&](Communicator& comm) {
      Data data(comm);
      good_calls(comm, data);
      lonely.call(comm, data);
      comm.barrier();
      comm.synchronize();
    }));
  }
}

TEST_CASE("on devices, ranks that took different roots hear of it from check()") {
  const std::string place = GENERATE("links", "nodes");
  for (const LonelyCall& lonely : lonely_calls()) {
    INFO(lonely.name << ", " << place);
    AllAtOnce call;
    check_roots_differ(run(place, [&](Communicator& comm) {
      Data data(comm);
      call(comm, data, lonely);
      const auto until = std::chrono::steady_clock::now() + 10s;
      while (std::chrono::steady_clock::now() < until) comm.check();
    }));
  }
}

TEST_CASE("on devices, ranks that took different roots and end say so in the log") {
  const std::string place = GENERATE("links", "nodes");
  for (const LonelyCall& lonely : lonely_calls()) {
    INFO(lonely.name << ", " << place);
    AllAtOnce call;
    std::vector<std::exception_ptr> errors;
    const std::string text = logged([&] {
      errors = run(place, [&](Communicator& comm) {
        Data data(comm);
        call(comm, data, lonely);
      });
    });
    INFO(text);
    bool told = false;
    for (const auto& error : errors) told = told || code_of(error) == ErrorCode::mismatch;
    CHECK((told || contains(text, "destroyed its communicator, and rank")));
    CHECK((told || contains(text, "disagree on the root")));
  }
}

TEST_CASE("on devices, a message that nobody receives, and a broadcast that nobody joins, are in the log at the end") {
  const std::string place = GENERATE("windows", "links", "nodes");
  INFO(place);
  std::barrier all_have_returned(kRanks);
  const std::string unread = logged([&] {
    rethrow(run(place, [&](Communicator& comm) {
      Data data(comm);
      good_calls(comm, data);
      if (comm.rank() == 0) {
        auto group = comm.group();
        group.send(data.one.span(), 1);
        group.end();
      }
      comm.synchronize();
      all_have_returned.arrive_and_wait();
    }));
  });
  INFO(unread);
  CHECK(contains(unread, "rank 0 had sent it 2 messages on its device, of which it received 1"));
  if (place == "windows") return;  // there all of a broadcast meet
  const std::string alone = logged([&] {
    rethrow(run(place, [&](Communicator& comm) {
      Data data(comm);
      good_calls(comm, data);
      comm.barrier();
      if (comm.rank() == 0) comm.broadcast(data.one.span(), 0);
      comm.synchronize();
      all_have_returned.arrive_and_wait();
    }));
  });
  INFO(alone);
  CHECK(contains(alone, "broadcast #5 of 6 i32, root 0"));
}

TEST_CASE("on devices, ranks that called the same leave nothing") {
  const std::string place = GENERATE("windows", "links", "nodes");
  INFO(place);
  CHECK(logged([&] {
          rethrow(run(place, [](Communicator& comm) {
            Data data(comm);
            good_calls(comm, data);
            comm.check();
            auto half = comm.split(comm.rank() % 2, 0);
            half.barrier();
            half.synchronize();
            good_calls(comm, data);
          }));
        }) == "");
}
