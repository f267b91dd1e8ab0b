// SPDX-License-Identifier: Apache-2.0
// Client and server over real sockets: what works when nothing goes wrong.
#include "rendezvous/client.hpp"

#include <atomic>
#include <map>
#include <mutex>

#include "rendezvous/survivals.hpp"
#include "rendezvous/wire.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

TEST_CASE("ranks that were given join and learn their places") {
  Job job;
  in_threads(6, [&](int rank) {
    auto client = job.client();
    const JoinRequest request{.rank = rank,
                              .world_size = 6,
                              .local_rank = rank % 3,
                              .node = rank < 3 ? "a" : "b",
                              .master_address = rank == 0 ? "10.0.0.1" : "",
                              .master_port = static_cast<std::uint16_t>(rank == 0 ? 777 : 0)};
    const Membership m = client->join(request, in(seconds(20)));
    if (m.rank != rank || m.world_size != 6 || m.local_rank != rank % 3 || m.local_size != 3 || m.node != rank / 3 ||
        m.nodes != 2 || m.master_address != "10.0.0.1" || m.master_port != 777) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " learned something else");
    }
    client->barrier("end", rank, 6, in(seconds(20)));
  });
}

TEST_CASE("ranks are assigned, those of a node in a row") {
  Job job(6);
  std::mutex mutex;
  std::map<int, Membership> seen;
  std::map<int, std::string> nodes;
  in_threads(6, [&](int i) {
    auto client = job.client();
    const std::string node = i % 2 == 0 ? "even" : "odd";
    const Membership m = client->join({.node = node}, in(seconds(20)));
    const std::lock_guard lock(mutex);
    seen[m.rank] = m;
    nodes[m.rank] = node;
  });
  REQUIRE(seen.size() == 6);
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(seen[rank].node == rank / 3);
    CHECK(seen[rank].local_rank == rank % 3);
    CHECK(nodes[rank] == nodes[rank / 3 * 3]);
    CHECK(seen[rank].master_address == "127.0.0.1");
  }
}

TEST_CASE("a later generation may be of another size, and nobody of an earlier one is in it") {
  Job job;
  const auto join_all = [&](std::uint32_t generation, int size) {
    in_threads(size, [&](int rank) {
      auto client = job.client();
      const auto met = client->join({.rank = rank, .world_size = size, .generation = generation}, in(seconds(20)));
      if (met.world_size != size || met.generation != generation) throw Error(ErrorCode::mismatch, "another world");
      client->barrier("end " + std::to_string(generation), rank, size, in(seconds(20)));
    });
  };
  join_all(0, 3);
  join_all(1000, 2);
  join_all(2000, 4);
  CHECK_THROWS_WITH(job.client()->join({.rank = 0, .world_size = 3, .generation = 1000}, in(seconds(20))),
                    Catch::Contains("it comes with generation 1000, the job is at 2000"));
  CHECK_THROWS_WITH(job.client()->join({.rank = 0, .world_size = 3, .generation = 2000}, in(seconds(20))),
                    Catch::Contains("wrong world size, it says 3 and the job has 4"));
}

TEST_CASE("the store keeps, waits, counts and compares") {
  Job job;
  auto a = job.client();
  auto b = job.client();
  CHECK_FALSE(a->try_get("k").has_value());
  CHECK_FALSE(a->erase("k"));
  a->set("k", bytes("one"));
  CHECK(text(b->get("k", in(seconds(5)))) == "one");
  CHECK_FALSE(b->compare_and_set("k", bytes("two"), bytes("three")));
  CHECK_FALSE(b->compare_and_set("k", std::nullopt, bytes("three")));
  CHECK(b->compare_and_set("k", bytes("one"), bytes("three")));
  CHECK(text(*a->try_get("k")) == "three");
  CHECK(a->erase("k"));
  CHECK(b->compare_and_set("k", std::nullopt, bytes("")));
  CHECK(a->get("k", in(seconds(5))).empty());
  CHECK(a->add("n", 5) == 5);
  CHECK(b->add("n", -7) == -2);
  CHECK(text(*a->try_get("n")) == "-2");
  CHECK(contains(error_of([&] { a->add("k", 1); }), "does not hold a number"));
  const std::string big(kMaxValueBytes, 'x');
  a->set("big", bytes(big));
  CHECK(text(b->get("big", in(seconds(5)))) == big);
  CHECK(contains(error_of([&] { a->set("big", bytes(big + "x")); }), "65537"));
}

TEST_CASE("one thread of a client may wait while another works") {
  Job job;
  auto a = job.client();
  auto waiting = std::async(std::launch::async, [&] { return text(a->get("late", in(seconds(20)))); });
  for (int i = 0; i < 100; ++i) a->add("count", 1);
  a->set("late", bytes("here"));
  CHECK(waiting.get() == "here");
}

TEST_CASE("an exchange gives everybody everything, large parts too") {
  Job job;
  const int n = GENERATE(1, 2, 7);
  const std::size_t size = GENERATE(std::size_t{0}, std::size_t{10}, kMaxValueBytes);
  std::atomic<int> right{0};
  in_threads(n, [&](int i) {
    auto client = job.client();
    const auto part = [&](int k) { return std::string(size, static_cast<char>('a' + k)); };
    const auto all = client->exchange("x", i, n, bytes(part(i)), in(seconds(20)));
    bool equal = static_cast<int>(all.size()) == n;
    for (int k = 0; equal && k < n; ++k) equal = text(all[static_cast<std::size_t>(k)]) == part(k);
    if (equal) ++right;
  });
  CHECK(right == n);
}

TEST_CASE("names of exchanges can be used again") {
  Job job;
  in_threads(3, [&](int i) {
    auto client = job.client();
    for (int round = 0; round < 20; ++round) {
      const auto all = client->exchange("again", i, 3, bytes(std::to_string(round)), in(seconds(20)));
      for (const auto& each : all) {
        if (text(each) != std::to_string(round)) throw Error(ErrorCode::mismatch, "a value of another round");
      }
    }
  });
}

TEST_CASE("a server without a secret serves clients without one") {
  const Server server({.job = "open"});
  auto client = Client::connect({.host = "localhost", .port = server.port(), .job = "open"}, in(seconds(20)));
  CHECK(client->join({.rank = 0, .world_size = 1}, in(seconds(20))).world_size == 1);
  CHECK(client->local_address() == "127.0.0.1");
}

TEST_CASE("whom survivors miss is kept, and nobody else") {
  Job job;
  std::vector<std::shared_ptr<Client>> clients;
  for (int r = 0; r < 3; ++r) clients.push_back(job.client());
  in_threads(3, [&](int rank) {
    clients[static_cast<std::size_t>(rank)]->join({.rank = rank, .world_size = 3}, in(seconds(20)));
  });
  clients[1].reset();
  const int members[] = {0, 1, 2};
  in_threads(2, [&](int i) {
    const auto survivors =
        clients[static_cast<std::size_t>(2 * i)]->survivors("world", 2 * i, members, in(seconds(20)));
    if (survivors != std::vector<int>{0, 2}) throw Error(ErrorCode::mismatch, "others have survived");
  });
  CHECK(clients[0]->try_get(missed_key(1)));
  for (const int rank : {0, 2}) CHECK(!clients[0]->try_get(missed_key(rank)));
}

TEST_CASE("those who enlist are taken in in the order in which they came, after the members") {
  Job job;
  auto rank = job.client();
  rank->join({.rank = 0, .world_size = 1}, in(seconds(10)));
  CHECK(rank->admit(std::vector{0}, 0, 1, in(seconds(10))).name.empty());
  CHECK(contains(error_of([&] { rank->admit(std::vector{0}, 2, 1, in(milliseconds(10))); }), "timeout: 0 of 2"));
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<std::future<Membership>> enlisted;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(job.client());
    enlisted.push_back(std::async(
        std::launch::async, [client = clients.back()] { return client->join({.enlists = true}, in(seconds(20))); }));
    const std::string wait = std::to_string(i + 1) + " of " + std::to_string(i + 2);
    std::string said;  // by the server, of how many wait
    for (int tries = 0; tries < 1000 && !contains(said, wait); ++tries)
      said = error_of([&] { rank->admit(std::vector{0}, i + 2, 1, in(milliseconds(10))); });
    REQUIRE(contains(said, wait));
  }
  const Growth growth = rank->admit(std::vector{0}, 2, 7, in(seconds(10)));
  CHECK(growth.job_ranks == std::vector{0, 1, 2});
  CHECK(growth.generation == 7);
  for (int i = 0; i < 2; ++i) {
    const Membership m = enlisted[static_cast<std::size_t>(i)].get();
    CHECK(m.rank == i + 1);
    CHECK(m.world_size == 3);
    CHECK(m.growth.key() == growth.key());
    CHECK(m.growth.job_ranks == growth.job_ranks);
  }
  // One of them goes: that growth fails for all, those who are in an exchange of it and those who come later.
  auto waiting = std::async(std::launch::async, [&] {
    return error_of([&] { rank->exchange(growth.key() + "/cards", 0, 3, {}, in(seconds(20))); });
  });
  clients[1].reset();
  CHECK(contains(waiting.get(), "joining rank 2 (host"));
  CHECK(contains(error_of([&] { clients[0]->exchange(growth.key() + "/x", 1, 3, {}, in(seconds(20))); }),
                 "joining rank 2"));
  CHECK(contains(error_of([&] { rank->check(growth); }), "joining rank 2"));
  const Growth next = rank->admit(std::vector{0, 1}, 0, 8, in(seconds(10)));
  CHECK(next.job_ranks == std::vector{0, 1, 3});
  CHECK(enlisted[2].get().rank == 2);
  rank->give_up(next, Error(ErrorCode::system, "no memory"));
  CHECK(contains(error_of([&] { clients[0]->check(next); }), "rank 0"));
  CHECK(contains(error_of([&] { clients[0]->check(next); }), "gave up: no memory"));
}

TEST_CASE("who enlists with another release is refused, by name, when the ranks let others join") {
  Job job;
  auto rank = job.client();
  rank->join({.rank = 0, .world_size = 1}, in(seconds(10)));
  auto refused = std::async(std::launch::async, [client = job.client()] {
    return error_of([&] { client->join({.enlists = true, .release = "0.0.1"}, in(seconds(20))); });
  });
  // Neither is counted: the right one is alone.
  auto taken = std::async(std::launch::async,
                          [client = job.client()] { return client->join({.enlists = true}, in(seconds(20))).rank; });
  const Growth growth = rank->admit(std::vector{0}, 1, 1, in(seconds(20)));
  CHECK(growth.job_ranks.size() == 2);
  CHECK(taken.get() == 1);
  std::string error;
  while (refused.wait_for(milliseconds(0)) != std::future_status::ready)
    rank->admit(std::vector{0}, 0, 1, in(seconds(20)));
  CHECK(contains(refused.get(), "runs release '0.0.1' of rondo"));
}
