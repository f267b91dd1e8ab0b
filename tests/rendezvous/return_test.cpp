// SPDX-License-Identifier: Apache-2.0
// A server that dies, and another one at its address that knows nothing but what the clients tell it.
#include <thread>

#include "rendezvous/survivals.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

struct Clients {
  Job job{};
  const std::uint16_t port = job.server->port();
  std::vector<std::shared_ptr<Client>> clients{};

  explicit Clients(int count) {
    for (int r = 0; r < count; ++r) clients.push_back(job.client());
    in_threads(count, [&](int rank) { client(rank).join({.rank = rank, .world_size = count}, in(seconds(20))); });
  }
  Client& client(int rank) { return *clients[static_cast<std::size_t>(rank)]; }
  void stop() { job.server.reset(); }
  void start() { start(job.secret); }
  void start(const Secret& secret, Limits limits = {}) {
    job.server =
        std::make_unique<Server>(ServerOptions{.port = port, .secret = secret, .job = "test", .limits = limits});
  }
  // It does not wait for long for those who do not come back.
  void start_impatient() { start(job.secret, {.come_back_within = milliseconds(200)}); }
  // All of them are back.
  void meet(const std::string& name) {
    const int count = static_cast<int>(clients.size());
    in_threads(count, [&](int rank) { client(rank).barrier(name, rank, count, in(seconds(20))); });
  }
};

}  // namespace

TEST_CASE("a call waits for a server that is away, and then says since when") {
  Clients members(2);
  members.stop();
  const std::string error = error_of([&] { members.client(0).get("x", in(milliseconds(50))); });
  CHECK(contains(error, "timeout: the rendezvous server at 127.0.0.1:"));
  CHECK(contains(error, " has been away since 20"));
  CHECK(contains(error, "start it again at this address"));
}

TEST_CASE("what was asked of a server that died is answered by the next one") {
  Clients members(2);
  std::string got;
  std::jthread waiting([&] { got = text(members.client(0).get("late", in(seconds(20)))); });
  CHECK(!error_of([&] { members.client(1).get("nothing", in(milliseconds(1))); }).empty());
  members.stop();
  members.start();
  members.client(1).set("late", as_bytes("value"));
  waiting.join();
  CHECK(got == "value");
}

TEST_CASE("the next server knows what its clients wrote, the latest of each key") {
  Clients members(2);
  members.client(0).set("kept", as_bytes("value"));
  members.client(0).set("key", as_bytes("older"));
  members.client(1).set("key", as_bytes("newer"));
  members.client(1).set("gone", as_bytes("value"));
  members.client(0).erase("gone");
  members.client(0).add("count", 2);
  members.client(1).add("count", 3);
  members.client(0).compare_and_set("chosen", std::nullopt, as_bytes("first"));
  for (int round = 0; round < 2; ++round) {
    members.stop();
    members.start();
    // A name is for one call of each, and the next server is told of those that there were.
    members.meet("back" + std::to_string(round));
    for (const int rank : {0, 1}) {
      Client& client = members.client(rank);
      CHECK(client.try_get("kept") == bytes("value"));
      CHECK(client.try_get("key") == bytes("newer"));
      CHECK(!client.try_get("gone"));
      CHECK(client.try_get("count") == bytes("5"));
      CHECK(!client.compare_and_set("chosen", std::nullopt, as_bytes("second")));
    }
  }
  CHECK(members.client(1).add("count", 1) == 6);
}

TEST_CASE("members of a server that died survive at the next one, with whom they miss") {
  Clients members(4);
  const std::vector<int> all{0, 1, 2, 3};
  members.stop();
  members.clients[1].reset();  // it dies meanwhile, and the next server never hears of it
  members.start();
  in_threads(4, [&](int rank) {
    if (rank == 1) return;
    const int missing[] = {1};
    if (rank == 3) members.client(3).missing("world@1", missing);
    const auto survivors = members.client(rank).survivors("world@1", rank, all, in(seconds(20)));
    if (survivors != std::vector<int>{0, 2, 3}) throw Error(ErrorCode::mismatch, "others have survived");
  });
  CHECK(members.client(0).try_get(missed_key(1)));
}

// The answer of rank 1 was on its way when the server died; a client of no rank asks in its place.
TEST_CASE("who asks the next server what only others were answered by the last one is answered, too") {
  Clients members(2);
  const std::vector<int> all{0, 1};
  in_threads(2, [&](int rank) {
    Client& client = members.client(rank);
    client.exchange("cards", rank, 2, as_bytes(rank == 0 ? "a" : "b"), in(seconds(20)));
    client.barrier("made", rank, 2, in(seconds(20)));
    client.survivors("world@1", rank, all, in(seconds(20)));
  });
  members.stop();
  members.clients[1].reset();
  members.start();
  const auto asks = members.job.client();
  CHECK(asks->exchange("cards", 1, 2, as_bytes("b"), in(seconds(20))) == std::vector{bytes("a"), bytes("b")});
  CHECK_NOTHROW(asks->barrier("made", 1, 2, in(seconds(20))));
  CHECK(asks->survivors("world@1", 1, all, in(seconds(20))) == all);
}

TEST_CASE("survivors do not wait for one of them who is missed after they were decided") {
  Clients members(3);
  const std::vector<int> all{0, 1, 2};
  in_threads(3, [&](int rank) { members.client(rank).survivors("world@1", rank, all, in(seconds(20))); });
  members.stop();
  members.clients[1].reset();  // the next server never hears of it
  members.start();
  std::string error;
  std::jthread waiting(
      [&] { error = error_of([&] { members.client(0).exchange("world@1/cards", 0, 3, {}, in(seconds(20))); }); });
  const int missing[] = {1};
  members.client(2).missing("world@1", missing);
  waiting.join();
  CHECK(contains(error,
                 "peer lost: rank 1 (not heard of since this server was started) was lost before everybody had "
                 "come to 'world@1/cards'"));
}

TEST_CASE("who was let in by a server that died is told when rank 0, which did not hear of it, asks anew") {
  Clients members(1);
  const auto joiner = members.job.client();
  std::jthread joins([&] { joiner->join({.enlists = true}, in(seconds(20))); });
  const int self[] = {0};
  const Growth growth = members.client(0).admit(self, 1, 1, in(seconds(20)));
  joins.join();
  members.stop();
  members.start();
  std::string error;
  std::jthread waits(
      [&] { error = error_of([&] { joiner->exchange(growth.key() + "/cards", 1, 2, {}, in(seconds(20))); }); });
  CHECK(members.client(0).admit(self, 0, 1, in(seconds(20))).name.empty());
  waits.join();
  CHECK(contains(error, "its rank 0 has asked for others to join anew"));
}

TEST_CASE("a joiner hears that a member was lost while the server was away") {
  Clients members(2);
  const auto joiner = members.job.client();
  std::jthread joins([&] { joiner->join({.enlists = true}, in(seconds(20))); });
  const int all[] = {0, 1};
  const Growth growth = members.client(0).admit(all, 1, 1, in(seconds(20)));
  joins.join();
  members.stop();
  members.clients[1].reset();  // the next server never hears of it
  members.start();
  const int lost[] = {1};
  members.client(0).missing(growth, lost);
  const auto error = error_of([&] { joiner->exchange(growth.key() + "/cards", 2, 3, {}, in(seconds(20))); });
  CHECK(contains(error, "peer lost: rank 1 was lost before 'grown.2@1' was made, as rank 0 (host "));
}

TEST_CASE("nobody waits for a joiner that died while the server was away") {
  Clients members(1);
  auto joiner = members.job.client();
  std::jthread joins([&] { joiner->join({.enlists = true}, in(seconds(20))); });
  const int self[] = {0};
  const Growth growth = members.client(0).admit(self, 1, 1, in(seconds(20)));
  joins.join();
  members.stop();
  joiner.reset();
  members.start_impatient();
  const auto error = error_of([&] { members.client(0).exchange(growth.key() + "/cards", 0, 2, {}, in(seconds(20))); });
  CHECK(contains(error,
                 "peer lost: joining rank 1 (not heard of since this server was started) was lost before "
                 "'grown.1@1' was made"));
}

// Those who have heard of it from rank 0 over their communicator, and not from a server.
TEST_CASE("a growth that the next server has not heard of fails when a member says that another one is lost") {
  Clients members(3);
  auto joiner = members.job.client();
  std::jthread joins([&] { joiner->join({.enlists = true}, in(seconds(20))); });
  const int all[] = {0, 1, 2};
  const Growth growth = members.client(0).admit(all, 1, 1, in(seconds(20)));
  joins.join();
  members.stop();
  members.clients[0].reset();
  joiner.reset();
  members.start();
  std::string error;
  std::jthread waits([&] {
    error = error_of([&] { members.client(1).exchange(growth.key() + "/cards", 1, 4, {}, in(seconds(20))); });
  });
  SECTION("because it sees that") {
    const int lost[] = {0};
    members.client(2).missing(growth, lost);
    waits.join();
    CHECK(contains(error, "peer lost: rank 0 was lost before 'grown.3@1' was made, as rank 2 (host "));
  }
  SECTION("because it gives up") {
    members.client(2).give_up(growth, Error(ErrorCode::peer_lost, "rank 0 is lost"));
    waits.join();
    CHECK(contains(error, "peer lost: rank 2 (host "));
    CHECK(contains(error, ") of 'grown.3@1' gave up: rank 0 is lost"));
  }
}

TEST_CASE("who does not come back to a server counts as lost after a while, also among survivors") {
  Clients members(3);
  members.stop();
  members.clients[1].reset();
  members.start_impatient();
  const std::string error = error_of([&] { members.client(0).exchange("of all", 0, 3, {}, in(seconds(20))); });
  CHECK(contains(error,
                 "peer lost: rank 1 (not heard of since this server was started) was lost before everybody had come "
                 "to 'of all'"));
  const std::vector<int> all{0, 1};
  CHECK(members.client(0).survivors("pair@1", 0, all, in(seconds(20))) == std::vector{0});
}

TEST_CASE("a client tells another server what the one of its last client knew") {
  Clients members(2);
  in_threads(2, [&](int rank) {
    members.client(rank).exchange("cards", rank, 2, as_bytes(rank == 0 ? "a" : "b"), in(seconds(20)));
  });
  members.client(0).set("key", as_bytes("value"));
  const Job other;
  const auto next = other.client(), last = other.client();
  next->tell_of(members.client(0), in(seconds(20)));
  CHECK(last->try_get("key") == bytes("value"));
  CHECK(last->exchange("cards", 1, 2, as_bytes("b"), in(seconds(20))) == std::vector{bytes("a"), bytes("b")});
}

TEST_CASE("who is new to a job that has come back is told what to do") {
  Clients members(2);
  members.stop();
  members.start();
  members.meet("back");
  const std::string error =
      error_of([&] { members.job.client()->join({.rank = 1, .world_size = 2}, in(seconds(20))); });
  CHECK(contains(error, "duplicate rank: rank 1 from host "));
  CHECK(contains(error, "holds it; start every rank once"));
}

TEST_CASE("a rank that is started again alone is told what became of it, and what to do") {
  Clients members(2);
  members.clients[1].reset();
  const std::string error =
      error_of([&] { members.job.client()->join({.rank = 1, .world_size = 2}, in(seconds(20))); });
  CHECK(contains(error, "duplicate rank: rank 1 from host "));
  CHECK(contains(error, "has left with it; restart all ranks"));
}

TEST_CASE("whoever listens at the address without the secret is not the server, and does not keep it away") {
  Clients members(2);
  members.stop();
  members.start(Secret::generate());
  const std::string error = error_of([&] { members.client(0).get("x", in(milliseconds(50))); });
  CHECK(contains(error, " has been away since 20"));
  CHECK(contains(error, "secret"));
  members.stop();
  members.start();
  members.meet("back");
}

TEST_CASE("another job that begins at the address is no return") {
  Clients members(2);
  members.stop();
  // In the place of the server until the other job has it.
  ServerOptions options{.port = members.port, .secret = members.job.secret, .job = "test", .world_size = 3};
  members.job.server = std::make_unique<Server>(std::move(options));
  const std::string error = error_of([&] { members.client(0).get("x", in(seconds(20))); });
  CHECK(contains(error, "came back without this job"));
  CHECK(contains(error, "world size"));
}

TEST_CASE("a server that is rank 0's own does not come back") {
  Job job(1, {}, true);
  auto client = job.client();
  client->join({.rank = 0, .world_size = 1}, in(seconds(20)));
  job.server.reset();
  const std::string error = error_of([&] { client->get("x", in(seconds(20))); });
  INFO(error);  // the reader's, or, when it has not looked yet, that of what is sent
  CHECK((contains(error, "is gone") || contains(error, "broke")));
}
