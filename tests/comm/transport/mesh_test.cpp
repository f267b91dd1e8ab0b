// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mesh.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <mutex>
#include <numeric>

#include "tests/comm/transport/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/flood.hpp"
#include "tests/support/tcp_pair.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

MeshOptions options(int rank, int world, std::shared_ptr<const Authenticator> authenticator = secret()) {
  MeshOptions made;
  made.rank = rank;
  made.world_size = world;
  made.name = "test";
  made.generation = 3;
  made.authenticator = std::move(authenticator);
  return made;
}

std::vector<MeshWish> all_but(int rank, int world) {
  std::vector<MeshWish> peers;
  for (int peer = 0; peer < world; ++peer) {
    if (peer != rank) peers.push_back({peer});
  }
  return peers;
}

// Meshes of a whole world in this process, and what they advertise.
struct World {
  std::vector<Mesh> meshes;
  std::vector<Store::Bytes> advertisements;
  explicit World(const std::vector<MeshOptions>& all) {
    for (const MeshOptions& each : all) {
      meshes.emplace_back(each);
      advertisements.push_back(meshes.back().advertisement());
    }
  }
  static World of(int size) {
    std::vector<MeshOptions> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(options(rank, size));
    return World(all);
  }
  int size() const { return static_cast<int>(meshes.size()); }
  std::vector<MeshPeer> connect(int rank, std::chrono::milliseconds limit) {
    return meshes[static_cast<std::size_t>(rank)].connect(advertisements, all_but(rank, size()), in(limit));
  }
};

SocketAddress port_of(const World& world, int rank) {
  return decode_advertisement(world.advertisements[static_cast<std::size_t>(rank)], rank).addresses.front();
}

Fd raw_connect(const SocketAddress& address) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), address.get(), address.bytes) == 0);
  return fd;
}

void say(const Fd& fd, std::string_view text) {
  REQUIRE(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

// Every pair says who it is on both sockets, and hears the other.
void check_talk(const std::vector<MeshPeer>& peers, int rank, int world) {
  if (static_cast<int>(peers.size()) != world - 1) throw std::runtime_error("a peer is missing");
  for (const MeshPeer& peer : peers) {
    for (const int fd : {peer.data.get(), peer.control.get()}) {
      const int word[3] = {rank, peer.rank, fd == peer.data.get()};
      if (::send(fd, word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) throw std::runtime_error("cannot send");
    }
  }
  for (const MeshPeer& peer : peers) {
    for (const int fd : {peer.data.get(), peer.control.get()}) {
      pollfd entry{fd, POLLIN, 0};
      int word[3] = {-1, -1, -1};
      if (::poll(&entry, 1, 5000) != 1 || ::recv(fd, word, sizeof(word), 0) != sizeof(word)) {
        throw std::runtime_error("cannot receive");
      }
      if (word[0] != peer.rank || word[1] != rank || word[2] != (fd == peer.data.get())) {
        throw std::runtime_error("this is another peer's socket");
      }
    }
  }
}

void check_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) CHECK(outcome.sentence == "");
}

}  // namespace

TEST_CASE("mesh: every pair gets its two sockets, and nothing else stays open") {
  const int size = GENERATE(1, 2, 3, 8, 16);
  CAPTURE(size);
  const std::size_t before = open_descriptors();
  {
    World world = World::of(size);
    std::vector<std::vector<MeshPeer>> all(static_cast<std::size_t>(size));
    check_well(run_ranks(size, [&](int rank) {
      auto& peers = all[static_cast<std::size_t>(rank)];
      peers = world.connect(rank, 10s);
      check_talk(peers, rank, size);
    }));
    CHECK(open_descriptors() == before + static_cast<std::size_t>(2 * size * (size - 1)));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("mesh: without an authenticator, and over IPv6") {
  std::vector<MeshOptions> all;
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(options(rank, 3, nullptr));
    all.back().addresses = {"::1"};
  }
  World world(all);
  check_well(run_ranks(3, [&](int rank) { check_talk(world.connect(rank, 10s), rank, 3); }));
}

TEST_CASE("mesh: a pair may live on different addresses; the first that answers is taken") {
  std::vector<MeshOptions> all;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(options(rank, 2));
    all.back().addresses = {"127.0.0.1", "::1"};
  }
  World world(all);
  // The lower rank claims that it is first of all to be found where nobody listens, then where somebody stays silent.
  const Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress address = *parse_address("127.0.0.1", 0);
  REQUIRE(::bind(silent.get(), address.get(), address.bytes) == 0);
  REQUIRE(::listen(silent.get(), 8) == 0);
  REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) == 0);
  Advertisement first = decode_advertisement(world.advertisements[0], 0);
  first.addresses.insert(first.addresses.begin(), {*parse_address("127.0.0.1", 1), address});
  world.advertisements[0] = encode(first);
  check_well(run_ranks(2, [&](int rank) { check_talk(world.connect(rank, 10s), rank, 2); }));
}

TEST_CASE("mesh: sockets are as promised") {
  World world = World::of(2);
  run_ranks(2, [&](int rank) {
    const auto peers = world.connect(rank, 10s);
    static std::mutex one_at_a_time;  // Catch2 checks from one thread at a time
    const std::lock_guard lock(one_at_a_time);
    for (const Fd* fd : {&peers[0].data, &peers[0].control}) {
      CHECK((::fcntl(fd->get(), F_GETFL) & O_NONBLOCK) != 0);
      CHECK((::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
      CHECK(option(*fd, IPPROTO_TCP, TCP_NODELAY) != 0);
      CHECK(option(*fd, SOL_SOCKET, SO_KEEPALIVE) == 0);
      CHECK(option(*fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);  // both ends are here
    }
  });
}

TEST_CASE("mesh: where no data connection is wanted there is none") {
  World world = World::of(3);  // one between 0 and 1
  check_well(run_ranks(3, [&](int rank) {
    std::vector<MeshWish> peers = all_but(rank, 3);
    for (MeshWish& peer : peers) peer.data = peer.rank + rank == 1;
    const auto met = world.meshes[static_cast<std::size_t>(rank)].connect(world.advertisements, peers, in(10s));
    for (const MeshPeer& peer : met) {
      if (bool{peer.data} != (peer.rank + rank == 1) || !peer.control) throw std::runtime_error("another connection");
    }
  }));
}

TEST_CASE("mesh: only the peers asked for are met") {
  World world = World::of(4);  // 0-1 and 2-3
  check_well(run_ranks(4, [&](int rank) {
    const MeshWish other{rank ^ 1};
    const auto peers =
        world.meshes[static_cast<std::size_t>(rank)].connect(world.advertisements, std::span(&other, 1), in(10s));
    if (peers.size() != 1 || peers[0].rank != other.rank) throw std::runtime_error("met the wrong rank");
  }));
}

TEST_CASE("mesh: a rank that comes late to a flooded port waits for no stranger") {
  const auto says = GENERATE(Flood::Says::nothing, Flood::Says::garbage);
  World world = World::of(2);
  const SocketAddress address = port_of(world, 0);
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address.get());
  const std::uint16_t port = ntohs(v4->sin_port);
  constexpr std::size_t kStrangers = 3000;
  const Flood flood({port}, kStrangers, says);
  std::chrono::steady_clock::duration waited{};
  check_well(run_ranks(2, [&](int rank) {
    if (rank == 1) {  // when the other has had all of the strangers
      while (flood.connected() < kStrangers || flood.met() == 0) std::this_thread::yield();
    }
    const auto begun = std::chrono::steady_clock::now();
    check_talk(world.connect(rank, 20s), rank, 2);
    if (rank == 1) waited = std::chrono::steady_clock::now() - begun;
  }));
  CHECK(waited < 2s);
}

TEST_CASE("mesh: strangers on the port are dropped and disturb nobody") {
  const std::size_t before = open_descriptors();
  {
    World world = World::of(3);
    std::vector<Fd> strangers;
    for (int rank = 0; rank < 2; ++rank) {
      const SocketAddress address = port_of(world, rank);
      for (int i = 0; i < 20; ++i) strangers.push_back(raw_connect(address));  // say nothing
      strangers.push_back(raw_connect(address));
      say(strangers.back(), "GET / HTTP/1.1\r\nHost: somebody\r\n\r\n");
      strangers.push_back(raw_connect(address));
      say(strangers.back(), std::string(100'000, 'x'));
      strangers.push_back(raw_connect(address));
      say(strangers.back(), "rondo/h1");  // begins well, then stops
      raw_connect(address);               // and leaves
    }
    check_well(run_ranks(3, [&](int rank) { check_talk(world.connect(rank, 10s), rank, 3); }));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("mesh: a stranger who stays silent, or stops in the middle, is closed after its time") {
  MeshOptions impatient = options(0, 2);
  impatient.handshake_limit = 100ms;
  World world({impatient, options(1, 2)});
  const Fd silent = raw_connect(port_of(world, 0));
  const Fd stopped = raw_connect(port_of(world, 0));
  say(stopped, "rondo/h1 and no more");
  std::thread alone([&] {
    try {
      world.connect(0, 3s);
    } catch (const Error&) {  // nobody else comes
    }
  });
  const auto start = std::chrono::steady_clock::now();
  char byte = 0;
  CHECK(::recv(silent.get(), &byte, 1, 0) <= 0);
  CHECK(::recv(stopped.get(), &byte, 1, 0) <= 0);
  CHECK(std::chrono::steady_clock::now() - start < 2s);
  world.connect(1, 3s);
  alone.join();
}

TEST_CASE("mesh: a hello with wrong rank, generation, name or id is dropped, and so is a replayed one") {
  World world = World::of(2);
  const MeetingId id1 = decode_advertisement(world.advertisements[1], 1).id;
  const MeetingId id0 = decode_advertisement(world.advertisements[0], 0).id;
  const Membership right{"test", 3, 2, nullptr};
  Membership old = right;
  old.generation = 2;
  Membership other = right;
  other.name = "toast";
  Membership larger = right;
  larger.world_size = 3;
  const Encounter encounter{1, 0, MeetingChannel::data, id1, id0};
  Encounter reversed{0, 1, MeetingChannel::data, id0, id1};
  Encounter far = encounter;
  far.from = 1'000'000;
  Encounter unknown = encounter;
  unknown.from_id = {};
  Encounter misled = encounter;
  misled.to_id = {};

  std::vector<Fd> liars;
  for (const Greeting& greeting :
       {Greeting(old, encounter), Greeting(other, encounter), Greeting(larger, encounter), Greeting(right, reversed),
        Greeting(right, far), Greeting(right, unknown), Greeting(right, misled), Greeting(right, encounter)}) {
    liars.push_back(raw_connect(port_of(world, 0)));
    const Hello& hello = greeting.hello();
    say(liars.back(), {reinterpret_cast<const char*>(hello.data()), hello.size()});
  }
  check_well(run_ranks(2, [&](int rank) {
    auto peers = world.connect(rank, 10s);
    check_talk(peers, rank, 2);
  }));
  liars.pop_back();  // right in everything but the secret: was challenged
  for (const Fd& liar : liars) {
    char byte = 0;
    CHECK(::recv(liar.get(), &byte, 1, 0) <= 0);  // closed without a word
  }
}

TEST_CASE(
    "mesh: a forged proof is turned away; so is a duplicate while the first lives, and takes its place when that is "
    "dead") {
  World world = World::of(2);
  const Membership members{"test", 3, 2, secret()};
  const auto id = [&](int rank) {
    return decode_advertisement(world.advertisements[static_cast<std::size_t>(rank)], rank).id;
  };
  // Rank 1, by hand: the connection, and whether it was welcome.
  const auto join = [&](MeetingChannel channel, bool forged = false) {
    const Greeting greeting(members, {1, 0, channel, id(1), id(0)});
    Fd fd = raw_connect(port_of(world, 0));
    ::send(fd.get(), greeting.hello().data(), kHelloBytes, MSG_NOSIGNAL);
    Challenge challenge{};
    REQUIRE(::recv(fd.get(), challenge.data(), challenge.size(), MSG_WAITALL) == kChallengeBytes);
    auto proof = greeting.answer(challenge);
    REQUIRE(proof.has_value());
    if (forged) proof->back() ^= std::byte{1};
    ::send(fd.get(), proof->data(), proof->size(), MSG_NOSIGNAL);
    char word = 0;
    const bool welcome = ::recv(fd.get(), &word, 1, 0) == 1;
    return std::pair(std::move(fd), welcome);
  };
  std::vector<MeshPeer> peers;
  std::thread zero([&] {
    try {
      peers = world.connect(0, 10s);
    } catch (const Error&) {  // seen by what is missing
    }
  });
  const auto forger = join(MeetingChannel::data, true);
  auto first = join(MeetingChannel::data);
  const auto duplicate = join(MeetingChannel::data);
  first.first.reset();
  const auto again = join(MeetingChannel::data);
  const auto control = join(MeetingChannel::control);
  zero.join();
  CHECK_FALSE(forger.second);
  CHECK(first.second);
  CHECK_FALSE(duplicate.second);
  CHECK(again.second);
  CHECK(control.second);
  REQUIRE(peers.size() == 1);
  REQUIRE(::send(again.first.get(), "x", 1, MSG_NOSIGNAL) == 1);
  pollfd entry{peers[0].data.get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 5000) == 1);  // the socket kept is the living one
}

TEST_CASE("mesh: a rank with another secret meets nobody, and everybody says so") {
  const std::size_t before = open_descriptors();
  {
    World world({options(0, 3), options(1, 3, secret(43)), options(2, 3)});
    const auto outcomes = run_ranks(3, [&](int rank) { world.connect(rank, 600ms); });
    for (const Outcome& outcome : outcomes) CHECK(outcome.code == static_cast<int>(ErrorCode::timeout));
    CHECK(outcomes[0].culprit == 1);
    CHECK(outcomes[2].culprit == 1);
    CHECK(outcomes[2].sentence.find("could not prove") != std::string::npos);
    CHECK(outcomes[2].sentence.find("rank 0") == std::string::npos);  // that one is not missing
    CHECK(outcomes[1].culprit == 0);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("mesh: a missing rank is named at the deadline, with what was tried") {
  const std::size_t before = open_descriptors();
  {
    World world = World::of(4);
    const std::string where = to_string(port_of(world, 1));
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = run_ranks(4, [&](int rank) {
      if (rank != 1) world.connect(rank, 400ms);
    });
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(took >= 400ms);
    CHECK(took < 1500ms);
    for (const int rank : {0, 2, 3}) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      CAPTURE(outcome.sentence);
      CHECK(outcome.code == static_cast<int>(ErrorCode::timeout));
      CHECK(outcome.culprit == 1);
      CHECK(outcome.sentence.find("1 of 3 peers") != std::string::npos);
    }
    CHECK(outcomes[2].sentence.find(where) != std::string::npos);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("mesh: an advertisement that is none is refused by name") {
  World world = World::of(2);
  SECTION("too short") { world.advertisements[0].resize(10); }
  SECTION("too long") { world.advertisements[0].push_back(std::byte{1}); }
  SECTION("empty") { world.advertisements[0].clear(); }
  SECTION("an address family that does not exist") { world.advertisements[0][25] = std::byte{5}; }
  SECTION("no address") {
    world.advertisements[0].resize(25);
    world.advertisements[0][24] = std::byte{0};
  }
  try {
    world.connect(1, 1s);
    FAIL("connected");
  } catch (const Error& error) {
    CHECK(error.error_code() == ErrorCode::corrupt_message);
    CHECK(error.culprit() == 0);
  }
}

TEST_CASE("mesh: ports come from the range, and an exhausted range says so") {
  // A range of one port that was free a moment ago; another process may take it, so look again then.
  for (int attempt = 0; attempt < 20; ++attempt) {
    MeshOptions one = options(0, 2);
    {
      const Mesh any(one);
      one.first_port = one.last_port = [&] {
        const auto address = decode_advertisement(any.advertisement(), 0).addresses.front();
        return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
      }();
    }
    try {
      const Mesh holder(one);
      try {
        const Mesh second(one);
        FAIL("two listeners on one port");
      } catch (const Error& error) {
        CHECK(error.error_code() == ErrorCode::system);
        CHECK(std::string(error.what()).find(std::to_string(one.first_port)) != std::string::npos);
      }
      one.last_port = static_cast<std::uint16_t>(one.first_port + 50);
      const Mesh next(one);
      return;
    } catch (const Error& error) {
      INFO(error.what());
    }
  }
  FAIL("no free port in 20 attempts");
}

TEST_CASE("mesh: addresses that are none, or not ours, are refused") {
  MeshOptions wrong = options(0, 2);
  wrong.addresses = {"localhost"};
  CHECK_THROWS_AS(Mesh(wrong), Error);
  wrong.addresses = {"203.0.113.7"};
  CHECK_THROWS_AS(Mesh(wrong), Error);
  wrong.addresses = {};
  wrong.first_port = 10;
  wrong.last_port = 5;
  CHECK_THROWS_AS(Mesh(wrong), Error);
}
