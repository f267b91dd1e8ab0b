// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_meeting.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>

#include "comm/transport/addresses.hpp"
#include "comm/transport/memory.hpp"
#include "tests/comm/transport/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kSegmentBytes = 1 << 16;

// The ranks 0, 2, 4 … of a world, as if the odd ones lived elsewhere.
struct Node {
  std::vector<NodeMeeting> meetings;
  std::vector<int> ranks;
  std::vector<Store::Bytes> advertisements;
  explicit Node(int size, int liar = -1) {
    for (int i = 0; i < size; ++i) {
      ranks.push_back(2 * i);
      meetings.emplace_back(2 * i, "node test", secret(i == liar ? 43 : 42));
      advertisements.push_back(meetings.back().advertisement());
      advertisements.emplace_back();
    }
  }
  NodeDescriptors meet(int index, std::chrono::milliseconds limit) {
    return meetings[static_cast<std::size_t>(index)].meet(ranks, advertisements, kSegmentBytes, in(limit));
  }
};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void check_shape(const NodeDescriptors& got, int index, int size) {
  require(got.doorbells.size() == kDoorbellsPerRank * static_cast<std::size_t>(size), "a doorbell is missing");
  require(static_cast<int>(got.peers.size()) == (index == 0 ? size - 1 : 1), "a peer is missing");
  for (int i = 0; i < static_cast<int>(got.peers.size()); ++i) {
    require(got.peers[static_cast<std::size_t>(i)].rank == (index == 0 ? 2 * (i + 1) : 0), "not in order");
    require((::fcntl(got.peers[static_cast<std::size_t>(i)].socket.get(), F_GETFL) & O_NONBLOCK) != 0, "blocks");
  }
  require((::fcntl(got.segment.get(), F_GETFD) & FD_CLOEXEC) != 0, "segment survives exec");
  for (const Fd& doorbell : got.doorbells) {
    require((::fcntl(doorbell.get(), F_GETFD) & FD_CLOEXEC) != 0, "doorbell survives exec");
  }
}

void check_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) CHECK(outcome.sentence == "");
}

bool ends(const Fd& socket) {  // within 5 s
  pollfd entry{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 5000) == 1 && ::recv(socket.get(), &byte, 1, 0) == 0;
}

Fd raw_connect(const Store::Bytes& advertisement) {
  MeetingId id;
  std::copy(advertisement.end() - static_cast<std::ptrdiff_t>(id.size()), advertisement.end(), id.begin());
  const UnixAddress address = abstract_address(id);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), address.get(), address.bytes) == 0);
  return fd;
}

}  // namespace

TEST_CASE("node meeting: all ranks map the same segment and can ring each other") {
  const int size = GENERATE(1, 2, 3, 8, 16);
  CAPTURE(size);
  const std::size_t before = open_descriptors();
  {
    Node node(size);
    std::vector<NodeDescriptors> all(static_cast<std::size_t>(size));
    check_well(run_ranks(size, [&](int index) {
      auto& got = all[static_cast<std::size_t>(index)];
      got = node.meet(index, 10s);
      check_shape(got, index, size);
      const Mapping segment = map(got.segment, kSegmentBytes);
      segment.data()[index] = static_cast<std::byte>(index + 1);
      ::eventfd_write(got.doorbells[static_cast<std::size_t>((index + 1) % size)].get(), 1);
    }));
    const Mapping segment = map(all.front().segment, kSegmentBytes);
    for (int index = 0; index < size; ++index) {
      CHECK(segment.data()[index] == static_cast<std::byte>(index + 1));
      eventfd_t rung = 0;
      CHECK(::eventfd_read(all[static_cast<std::size_t>(index)].doorbells[static_cast<std::size_t>(index)].get(),
                           &rung) == 0);
      CHECK(rung == 1);
    }
    // Per rank: segment, doorbells; and two ends of each leader-follower socket.
    const auto n = static_cast<std::size_t>(size);
    CHECK(open_descriptors() == before + n * (1 + kDoorbellsPerRank * n) + 2 * (n - 1));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("node meeting: more doorbells than one message carries") {
  const int size = 260;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur < 2000) {
    WARN("skipped: too few descriptors allowed");
    return;
  }
  // Only the last two ranks come, so that one process can hold what they get; the leader's error tells of the others.
  Node node(size);
  const auto outcomes = run_ranks(3, [&](int i) { node.meet(i == 0 ? 0 : size - i, 500ms); });
  CHECK(outcomes[1].code == static_cast<int>(ErrorCode::timeout));
  CHECK(outcomes[1].culprit == 2);
  CHECK(outcomes[1].sentence.find("and 241 more") != std::string::npos);  // 257 missing, 16 named
}

TEST_CASE("node meeting: strangers on the socket disturb nobody") {
  const std::size_t before = open_descriptors();
  {
    Node node(3);
    std::vector<Fd> strangers;
    for (int i = 0; i < 10; ++i) strangers.push_back(raw_connect(node.advertisements[0]));
    const std::string text = "GET / HTTP/1.1\r\n\r\n";
    REQUIRE(::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL) > 0);
    raw_connect(node.advertisements[0]);
    check_well(run_ranks(3, [&](int index) { check_shape(node.meet(index, 10s), index, 3); }));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("node meeting: a missing follower is named by everybody at the deadline") {
  const std::size_t before = open_descriptors();
  {
    Node node(4);
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = run_ranks(4, [&](int index) {
      if (index != 2) node.meet(index, 300ms);
    });
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(took >= 300ms);
    CHECK(took < 1500ms);
    for (const std::size_t index : {0U, 1U, 3U}) {
      CAPTURE(outcomes[index].sentence);
      CHECK(outcomes[index].code == static_cast<int>(ErrorCode::timeout));
      CHECK(outcomes[index].culprit == 4);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("node meeting: a missing leader is named") {
  Node node(3);
  const auto outcomes = run_ranks(3, [&](int index) {
    if (index != 0) node.meet(index, 200ms);
  });
  CHECK(outcomes[1].code == static_cast<int>(ErrorCode::timeout));
  CHECK(outcomes[1].culprit == 0);
  CHECK(outcomes[2].culprit == 0);
  node.meetings.erase(node.meetings.begin());  // and one whose process is gone, at once
  const auto start = std::chrono::steady_clock::now();
  try {
    NodeMeeting late(2, "node test", secret());
    late.meet(node.ranks, node.advertisements, kSegmentBytes, in(5s));
    FAIL("met a leader that is gone");
  } catch (const Error& error) {
    CHECK(error.error_code() == ErrorCode::peer_lost);
    CHECK(error.culprit() == 0);
  }
  CHECK(std::chrono::steady_clock::now() - start < 2s);
}

TEST_CASE("node meeting: a rank with another secret is not let in") {
  Node node(3, 1);
  const auto outcomes = run_ranks(3, [&](int index) { node.meet(index, 300ms); });
  CHECK(outcomes[0].code == static_cast<int>(ErrorCode::timeout));
  CHECK(outcomes[0].culprit == 2);
  CHECK(outcomes[1].code == static_cast<int>(ErrorCode::corrupt_message));
  CHECK(outcomes[2].culprit == 2);
}

TEST_CASE("node meeting: a rank that leaves in the middle is named at once") {
  Node node(3);
  const pid_t child = ::fork();
  if (child == 0) {  // rank 4: is served, but rank 2 does not come, and then this process ends
    try {
      node.meet(2, 200ms);
    } catch (const std::exception&) {
    }
    ::_exit(0);
  }
  REQUIRE(child > 0);
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = run_ranks(1, [&](int index) { node.meet(index, 20s); });
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  ::waitpid(child, nullptr, 0);
  CHECK(outcomes[0].code == static_cast<int>(ErrorCode::peer_lost));
  CHECK(outcomes[0].culprit == 4);
}

TEST_CASE("node meeting: processes meet, and the death of one ends its sockets") {
  const std::size_t before = open_descriptors();
  {
    Node node(3);
    std::vector<pid_t> children;
    for (const int index : {1, 2}) {
      const pid_t child = ::fork();
      if (child == 0) {
        try {
          const NodeDescriptors got = node.meet(index, 10s);
          const Mapping segment = map(got.segment, kSegmentBytes);
          segment.data()[index] = static_cast<std::byte>(index);
          ::eventfd_write(got.doorbells[0].get(), 1);
          // Rank 2 sees the leader close; rank 4 is killed before that.
          ::_exit(ends(got.peers[0].socket) ? 7 : 8);
        } catch (const std::exception&) {
          ::_exit(9);
        }
      }
      REQUIRE(child > 0);
      children.push_back(child);
    }
    NodeDescriptors got = node.meet(0, 10s);
    eventfd_t rung = 0;
    while (rung < 2) {
      pollfd entry{got.doorbells[0].get(), POLLIN, 0};
      REQUIRE(::poll(&entry, 1, 5000) == 1);
      eventfd_t now = 0;
      REQUIRE(::eventfd_read(got.doorbells[0].get(), &now) == 0);
      rung += now;
    }
    const Mapping segment = map(got.segment, kSegmentBytes);
    CHECK(segment.data()[1] == std::byte{1});
    CHECK(segment.data()[2] == std::byte{2});

    REQUIRE(::kill(children[1], SIGKILL) == 0);
    CHECK(ends(got.peers[1].socket));
    pollfd other{got.peers[0].socket.get(), POLLIN, 0};
    CHECK(::poll(&other, 1, 0) == 0);  // rank 2 lives
    got.peers.clear();
    int status = 0;
    REQUIRE(::waitpid(children[0], &status, 0) == children[0]);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    ::waitpid(children[1], nullptr, 0);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("node meeting: bad advertisements and foreign ranks are refused") {
  Node node(2);
  const std::vector<int> others{2, 4};
  CHECK_THROWS_AS(node.meetings[0].meet(others, node.advertisements, kSegmentBytes, in(100ms)), Error);
  node.advertisements[0].pop_back();
  try {
    node.meet(1, 100ms);
    FAIL("met");
  } catch (const Error& error) {
    CHECK(error.error_code() == ErrorCode::corrupt_message);
    CHECK(error.culprit() == 0);
  }
}

TEST_CASE("node identity: the name where there is one, else this node's") {
  CHECK(node_identity("a") == node_identity("a"));
  CHECK(node_identity("a") != node_identity("b"));
  CHECK(node_identity("") == node_identity(""));
  CHECK(node_identity("") != node_identity("a"));
}

TEST_CASE("descriptors: one with its tag goes over, and the deadline holds") {
  const std::size_t before = open_descriptors();
  {
    int ends_of_pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_of_pair) == 0);
    Fd one(ends_of_pair[0]);
    const Fd two(ends_of_pair[1]);
    const Fd memory = make_sealed_memfd("test", 4096);
    send_descriptor(one, memory, 77, in(1s));
    const TaggedDescriptor got = receive_descriptor(two, in(1s));
    CHECK(got.tag == 77);
    CHECK(map(got.fd, 4096).bytes() == 4096);
    CHECK((::fcntl(got.fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    try {
      receive_descriptor(two, in(50ms));
      FAIL("received nothing");
    } catch (const Error& error) {
      CHECK(error.error_code() == ErrorCode::timeout);
    }
    REQUIRE(::send(one.get(), "123456789012", 12, 0) == 12);
    try {
      receive_descriptor(two, in(1s));
      FAIL("took text for a descriptor");
    } catch (const Error& error) {
      CHECK(error.error_code() == ErrorCode::corrupt_message);
    }
    one.reset();
    try {
      receive_descriptor(two, in(1s));
      FAIL("received from nobody");
    } catch (const Error& error) {
      CHECK(error.error_code() == ErrorCode::peer_lost);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("descriptors: the limit of open files is an error, not a silent loss") {
  int ends_of_pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_of_pair) == 0);
  const Fd one(ends_of_pair[0]);
  const Fd two(ends_of_pair[1]);
  send_descriptor(one, one, 1, in(1s));
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{static_cast<rlim_t>(two.get()), limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  std::string sentence;
  try {
    receive_descriptor(two, in(1s));
  } catch (const Error& error) {
    sentence = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(sentence.find("ulimit -n") != std::string::npos);
}
