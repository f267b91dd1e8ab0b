// SPDX-License-Identifier: Apache-2.0
// Members of a communicator that was growing when a rank died: some have the larger one, others have given it up.
#include <thread>

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

const std::vector<int> kSmaller{0, 1, 2}, kLarger{0, 1, 2, 3};
const Doubt kHas{.growth = "grown.3@1", .instead = "world@1", .members = 3}, kGaveUp{.growth = "grown.3@1"};

// Of a world of three whose rank 2 is gone; 3 would have joined.
struct Members {
  Job job{};
  const std::uint16_t port = job.server->port();
  std::vector<std::shared_ptr<Client>> clients{};
  Members() {
    for (int r = 0; r < 3; ++r) clients.push_back(job.client());
    in_threads(3, [&](int rank) {
      clients[static_cast<std::size_t>(rank)]->join({.rank = rank, .world_size = 3}, in(seconds(20)));
    });
    clients[2].reset();
  }
  Survived larger(int rank) {
    return clients[static_cast<std::size_t>(rank)]->survivors("grown.3@2", rank, kLarger, kHas, in(seconds(20)));
  }
  Survived smaller(int rank) {
    return clients[static_cast<std::size_t>(rank)]->survivors("world@1", rank, kSmaller, kGaveUp, in(seconds(20)));
  }
  // It knows what its clients tell it.
  void replace_server() {
    job.server.reset();
    job.server = std::make_unique<Server>(ServerOptions{.port = port, .secret = job.secret, .job = "test"});
  }
};

}  // namespace

TEST_CASE("who has a communicator that another member has given up survives in the smaller one, whoever asks first") {
  const int first = GENERATE(0, 1);
  Members members;
  Survived has, gave_up;
  const auto ask = [&](int rank) { (rank == 0 ? has : gave_up) = rank == 0 ? members.larger(0) : members.smaller(1); };
  std::jthread waiting([&] { ask(first); });
  members.clients[static_cast<std::size_t>(1 - first)]->try_get("the other may have asked by now");
  ask(1 - first);
  waiting.join();
  CHECK(has.ranks == std::vector{0, 1});
  CHECK(has.in_smaller);
  CHECK(gave_up.ranks == std::vector{0, 1});
  CHECK_FALSE(gave_up.in_smaller);
}

TEST_CASE("where all members have the larger communicator, they survive in it") {
  Members members;
  std::vector<Survived> said(2);
  in_threads(2, [&](int rank) { said[static_cast<std::size_t>(rank)] = members.larger(rank); });
  for (const Survived& one : said) {
    CHECK(one.ranks == std::vector{0, 1});
    CHECK_FALSE(one.in_smaller);
  }
}

TEST_CASE("who gave a communicator up too late is told that the others have gone on with it") {
  Members members;
  std::jthread waiting([&] { members.larger(0); });
  members.clients[1]->missing("grown.3@2", std::vector{1});  // as peers say of a stopped process
  waiting.join();
  CHECK(contains(error_of([&] { members.smaller(1); }),
                 "rank 1 gave 'grown.3@1' up and was taken for lost, and the survivors have gone on with it"));
}

TEST_CASE("the next server knows who came back from a communicator that was given up") {
  Members members;
  in_threads(2, [&](int rank) { rank == 0 ? members.larger(0) : members.smaller(1); });
  const int asks = GENERATE(0, 1);
  members.clients[static_cast<std::size_t>(1 - asks)]->try_get("it is there");
  members.replace_server();
  members.clients[static_cast<std::size_t>(1 - asks)]->try_get("it is back");
  const Survived again = asks == 0 ? members.larger(0) : members.smaller(1);
  CHECK(again.ranks == std::vector{0, 1});
  CHECK(again.in_smaller == (asks == 0));
}

TEST_CASE("a process that was to join is told that the members have given its communicator up") {
  Members members;
  const auto joiner = members.job.client();
  std::jthread waiting([&] { members.smaller(0); });
  members.clients[1]->missing("world@1", std::vector{1});
  waiting.join();
  CHECK(contains(error_of([&] { joiner->survivors("grown.3@2", 3, kLarger, kHas, in(seconds(20))); }),
                 "the members of 'grown.3@1' have given it up"));
}
