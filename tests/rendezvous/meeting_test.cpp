// SPDX-License-Identifier: Apache-2.0
// The ways to meet, with ranks as threads: a Unix socket for the neighbours of one user, a port with a secret file, a
// file. What is checked is the Bootstrap that a communicator would begin with.
#include "runtime/meeting.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "comm/setup/encryption_choice.hpp"
#include "comm/setup/local_store.hpp"
#include "rendezvous/listen.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::runtime;
using namespace rondo::rendezvous::test;
using rondo::rendezvous::JoinRequest;
using rondo::rendezvous::Secret;

namespace {

std::uint16_t free_port() { return rendezvous::listen_on({"127.0.0.1"}, 0).port; }

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rondo-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

// Joins with n ranks and sees that each can reach the store and sign for the others, and that all encrypt or none.
template <class Meet>
void check_meeting(int n, Meet meet) {
  std::mutex mutex;
  std::vector<Bootstrap> all(static_cast<std::size_t>(n));
  in_threads(n, [&](int rank) {
    Bootstrap mine = meet(rank);
    const std::lock_guard lock(mutex);
    all[static_cast<std::size_t>(rank)] = std::move(mine);
  });
  const std::string message = "to be signed";
  for (int rank = 0; rank < n; ++rank) {
    const Bootstrap& mine = all[static_cast<std::size_t>(rank)];
    CHECK(mine.rank == rank);
    CHECK(mine.world_size == n);
    CHECK(mine.addresses == std::vector<std::string>{"127.0.0.1"});
    REQUIRE(mine.authenticator);
    CHECK(mine.authenticator->verify(rendezvous::as_bytes(message),
                                     all[0].authenticator->sign(rendezvous::as_bytes(message))));
    CHECK((mine.encryption != nullptr) == encryption_is_wanted());
  }
  in_threads(n, [&](int rank) {
    const auto got = all[static_cast<std::size_t>(rank)].store->exchange("x", rank, n, bytes("v"), in(seconds(20)));
    if (static_cast<int>(got.size()) != n) throw Error(ErrorCode::mismatch, "the exchange is incomplete");
  });
}

}  // namespace

TEST_CASE("ranks of one user on one machine need no secret") {
  const rondo::test::Setting encryption("RONDO_ENCRYPT", GENERATE("", "1"));
  const Launch launch{.launcher = "set by hand",
                      .world_size = 3,
                      .master_address = "127.0.0.1",
                      .master_port = free_port(),
                      .job = "neighbours"};
  check_meeting(3, [&](int rank) {
    Launch mine = launch;
    mine.rank = rank;
    return meet(mine, {}, in(seconds(20)));
  });
}

TEST_CASE("another machine's address needs a secret file") {
  const Launch launch{.launcher = "set by hand",
                      .rank = 1,
                      .world_size = 2,
                      .master_address = "192.0.2.1",
                      .master_port = 29500,
                      .job = "far"};
  const std::string error = error_of([&] { meet(launch, {}, in(seconds(5))); });
  CHECK(contains(error, "RONDO_SECRET_FILE"));
}

TEST_CASE("rank 0 that does not come is named at the deadline") {
  const Launch launch{.launcher = "set by hand",
                      .rank = 1,
                      .world_size = 2,
                      .master_address = "127.0.0.1",
                      .master_port = free_port(),
                      .job = "alone"};
  const auto begun = std::chrono::steady_clock::now();
  CHECK(contains(error_of([&] { meet(launch, {}, in(milliseconds(200))); }), "rank 0"));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(5));
}

TEST_CASE("with a secret, rank 0 serves at the given port and others join there") {
  const rondo::test::Setting encryption("RONDO_ENCRYPT", GENERATE("", "1"));
  const Trust trust{Secret::generate()};
  const MeetingAddress place{.host = "localhost", .port = free_port(), .job = "tcp"};
  check_meeting(3,
                [&](int rank) { return meet_at(place, trust, {.rank = rank, .world_size = 3}, {}, in(seconds(20))); });
}

TEST_CASE("whoever serves already is joined") {
  const Trust trust{Secret::generate()};
  const rendezvous::Server server({.bind = {"localhost"}, .secret = trust.secret, .job = "tcp"});
  const MeetingAddress place{.host = "localhost", .port = server.port(), .job = "tcp"};
  check_meeting(2,
                [&](int rank) { return meet_at(place, trust, {.rank = rank, .world_size = 2}, {}, in(seconds(20))); });
}

TEST_CASE("who has rank 0's port and does not serve there is named, and when it has gone rank 0 serves") {
  rendezvous::Listening deaf = rendezvous::listen_on({"127.0.0.1"}, 0);
  const Trust trust{Secret::generate()};
  const MeetingAddress place{.host = "127.0.0.1", .port = deaf.port, .job = "tcp"};
  const std::string error =
      error_of([&] { meet_at(place, trust, {.rank = 0, .world_size = 2}, {}, in(milliseconds(700))); });
  INFO(error);
  CHECK(contains(error, "says nothing"));
  CHECK(contains(error, fmt::format("process {} (runtime_test) listens there: end it, or choose another", ::getpid())));
  std::jthread leaves([&] {  // once it has been tried
    for (int tried = 0; tried < 4; ++tried) {
      pollfd knocks{deaf.sockets.front().get(), POLLIN, 0};
      ::poll(&knocks, 1, 10'000);
      const Fd taken(::accept(deaf.sockets.front().get(), nullptr, nullptr));
    }
    deaf.sockets.clear();
  });
  check_meeting(2,
                [&](int rank) { return meet_at(place, trust, {.rank = rank, .world_size = 2}, {}, in(seconds(20))); });
}

TEST_CASE("a file leads to rank 0, whatever lay there before, and is removed") {
  const rondo::test::Setting encryption("RONDO_ENCRYPT", GENERATE("", "1"));
  const Folder folder;
  const std::string path = folder.path / "meeting";
  const int stale = GENERATE(0, 1, 2, 3);
  if (stale == 1) std::ofstream(path) << "something else";
  if (stale == 2) {  // as a run that was killed leaves it
    std::ofstream(path) << "rondo-meeting-2\n127.0.0.1:" << free_port() << "\n"
                        << Secret::generate().to_hex() << "\n\"file\"\nhere\nend\n";
    ::chmod(path.c_str(), 0600);
  }
  if (stale == 3) std::filesystem::create_symlink("/nowhere", path);
  check_meeting(3, [&](int rank) { return meet_by_file(path, {.rank = rank, .world_size = 3}, {}, in(seconds(20))); });
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a place that cannot hold a file is named at once") {
  const Folder folder;
  const bool is_folder = GENERATE(true, false);
  const std::string path = is_folder ? folder.path : folder.path / "no" / "such";
  const auto begun = std::chrono::steady_clock::now();
  CHECK(contains(error_of([&] { meet_by_file(path, {.rank = 0, .world_size = 2}, {}, in(seconds(60))); }),
                 "cannot write " + path));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(20));
}

TEST_CASE("ranks may make further worlds at one place, at the same time or in turns") {
  const Folder folder;
  const Trust trust{Secret::generate()};
  const MeetingAddress place{.host = "127.0.0.1", .port = free_port(), .job = "again"};
  const MeetingAddress neighbours{.host = "127.0.0.1", .port = free_port(), .job = "again"};
  const int way = GENERATE(0, 1, 2);
  const bool at_once = GENERATE(true, false);
  const auto meet = [&](int rank) {
    const JoinRequest request{.rank = rank, .world_size = 3, .instance = "instance " + std::to_string(rank)};
    if (way == 0) return meet_by_file(folder.path / "meeting", request, {}, in(seconds(20)));
    return meet_at(way == 1 ? place : neighbours, way == 1 ? trust : Trust{}, request, {}, in(seconds(20)));
  };
  in_threads(3, [&](int rank) {
    std::vector<Bootstrap> kept;
    for (int turn = 1; turn <= 3; ++turn) {
      if (!at_once) kept.clear();
      kept.push_back(meet(rank));
      const std::string name = next_world_name(*kept.back().store, 0, rank);
      const auto got = kept.back().store->exchange(name, rank, 3, bytes("v"), in(seconds(20)));
      if (got.size() != 3) throw Error(ErrorCode::mismatch, "the exchange is incomplete");
      if (at_once && turn > 1 && name != "world." + std::to_string(turn)) throw Error(ErrorCode::mismatch, name);
    }
  });
}

TEST_CASE("a file that nobody replaces is named at the deadline") {
  const Folder folder;
  const std::string path = folder.path / "meeting";
  const std::string error =
      error_of([&] { meet_by_file(path, {.rank = 1, .world_size = 2}, {}, in(milliseconds(100))); });
  CHECK(contains(error, path));
}

TEST_CASE("a process may make several worlds of one server") {
  Job job;
  auto a = job.client();
  auto b = job.client();
  CHECK(next_world_name(*a, 0, 0) == "world");
  CHECK(next_world_name(*b, 0, 1) == "world");
  CHECK(next_world_name(*a, 0, 0) == "world.2");
  const JoinRequest request{.rank = 0, .world_size = 1, .instance = "same"};
  CHECK(a->join(request, in(seconds(5))).rank == 0);
  CHECK(b->join(request, in(seconds(5))).rank == 0);
  b.reset();
  const int members[] = {0};
  CHECK(a->survivors("world", 0, members, in(seconds(5))) == std::vector<int>{0});
}

TEST_CASE("ranks that are to encrypt do not meet through a store of the user's own") {
  const rondo::test::Setting encryption("RONDO_ENCRYPT", "1");
  LocalStore store;
  const std::string error = error_of([&] { Communicator::create({.rank = 0, .world_size = 1, .store = &store}); });
  CHECK(contains(error, "RONDO_ENCRYPT=1 does not go with a store of your own"));
}
