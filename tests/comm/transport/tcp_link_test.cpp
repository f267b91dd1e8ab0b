// SPDX-License-Identifier: Apache-2.0
// Over sequenced-packet sockets, where one read takes what one write has sent.
#include "comm/transport/tcp_link.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "comm/transport/sockets.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/tcp_pair.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace rondo::test;

namespace {

constexpr FifoShape kShape{.slots = 4, .slice_bytes = 1024};
constexpr std::size_t kSlices = 16, kStepsOfAWrite = 64;
constexpr std::size_t kStep = sizeof(StepHeader) + kShape.slice_bytes;
// Odd steps are a byte longer: where a step begins when all steps are of kStep otherwise.
constexpr std::size_t begin_of(std::size_t step) { return step * kStep + step / 2; }
constexpr std::size_t header_of(std::size_t step) { return begin_of(step) + step % 2; }

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    there = Fd(ends[1]);
    Links links = make_tcp_links(Fd(ends[0]), 1, kShape);
    send = std::move(links.send);
    recv = std::move(links.recv);
    std::iota(data.begin(), data.end(), std::uint32_t{0});
  }
  void post(std::size_t step) {
    REQUIRE(send->ready());
    const std::byte* begin = reinterpret_cast<const std::byte*>(data.data()) + step % kSlices * kShape.slice_bytes;
    send->send({.sequence = 1, .count = data.size()}, begin, kShape.slice_bytes);
  }
  ssize_t take(std::vector<std::byte>& into) {
    into.resize(65 * kStep);
    return ::recv(there.get(), into.data(), into.size(), 0);
  }

  Fd there;
  std::unique_ptr<SendLink> send;
  std::unique_ptr<RecvLink> recv;
  std::vector<std::uint32_t> data = std::vector<std::uint32_t>(kSlices * kShape.slice_bytes / 4);
};

}  // namespace

TEST_CASE("steps wait for each other until they are flushed, and leave in one write") {
  Pair pair;
  std::vector<std::byte> got;
  for (std::size_t step = 0; step < 3; ++step) pair.post(step);
  CHECK(pair.take(got) == -1);
  CHECK(errno == EAGAIN);
  CHECK(pair.send->refers_to(reinterpret_cast<const std::byte*>(pair.data.data()), 3 * kShape.slice_bytes));

  CHECK(pair.send->flushed());
  REQUIRE(pair.take(got) == static_cast<ssize_t>(begin_of(3)));
  for (std::size_t step = 0; step < 3; ++step) {
    const auto* values = got.data() + header_of(step) + sizeof(StepHeader);
    CHECK(std::memcmp(values, pair.data.data() + step * kShape.slice_bytes / 4, kShape.slice_bytes) == 0);
  }
}

TEST_CASE(
    "what lies with the caller needs no slot: as many steps as one write takes, and asking for one more sends them") {
  Pair pair;
  std::vector<std::byte> got;
  for (std::size_t step = 0; step < kStepsOfAWrite; ++step) pair.post(step);
  CHECK(pair.take(got) == -1);
  pair.post(kStepsOfAWrite);
  CHECK(pair.take(got) == static_cast<ssize_t>(begin_of(kStepsOfAWrite)));
  CHECK(pair.send->flushed());
  CHECK(pair.take(got) == static_cast<ssize_t>(kStep));  // its number is even
}

TEST_CASE("what is built in a slot stays there until it is sent, whatever is sent beside it") {
  Pair pair;
  std::vector<std::byte> got, all;
  for (std::size_t step = 0; step < 3 * kShape.slots; ++step) {
    pair.post(0);
    REQUIRE(pair.send->ready());
    std::memset(pair.send->slot(), static_cast<int>(step + 1), kShape.slice_bytes);
    pair.send->publish({.sequence = 1}, kShape.slice_bytes);
  }
  CHECK(pair.send->flushed());
  for (ssize_t bytes = pair.take(got); bytes > 0; bytes = pair.take(got))
    all.insert(all.end(), got.begin(), got.begin() + bytes);
  REQUIRE(all.size() == begin_of(2 * 3 * kShape.slots));
  for (std::size_t step = 0; step < 3 * kShape.slots; ++step) {
    const std::byte* bytes = all.data() + header_of(2 * step + 1) + sizeof(StepHeader);
    CHECK(std::all_of(bytes, bytes + kShape.slice_bytes, [&](std::byte b) { return b == std::byte(step + 1); }));
  }
}

namespace {

constexpr int kTail = 2;  // bytes

int queued(int socket, unsigned long direction) {
  int bytes = -1;
  REQUIRE(::ioctl(socket, direction, &bytes) == 0);
  return bytes;
}

constexpr FifoShape kLong{.slots = 4, .slice_bytes = 16384};  // a step is sent in one piece, or as vectors

// Two links each over a TCP connection within this host, or as if between two.
struct Ends {
  explicit Ends(const char* from = "127.0.0.1") {
    TcpPair pair(from, prepare_for_data);
    set_data_options(pair.near);
    set_data_options(pair.far);
    near = pair.near.get();
    far = pair.far.get();
    Links of_near = make_tcp_links(std::move(pair.near), 1, kLong),
          of_far = make_tcp_links(std::move(pair.far), 0, kLong);
    near_send = std::move(of_near.send);
    near_recv = std::move(of_near.recv);
    far_send = std::move(of_far.send);
    far_recv = std::move(of_far.recv);
    std::iota(data.begin(), data.end(), std::uint32_t{0});
  }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(data.data()); }
  void send(SendLink& link, std::size_t bytes) {
    REQUIRE(link.ready());
    link.send({.sequence = ++sequence}, this->bytes(), bytes);
    REQUIRE(link.flushed());
  }
  // The step is here, or comes: within one host as soon as it was sent.
  void expect(RecvLink& link, std::size_t bytes) {
    std::vector<std::byte> into(bytes);
    const StepHeader* header = nullptr;
    for (int tries = 0; header == nullptr && tries < 1000; ++tries) header = link.try_step(into.data(), bytes);
    REQUIRE(header != nullptr);
    CHECK(header->bytes == bytes);
    CHECK(header->signature.sequence == sequence);
    CHECK((bytes == 0 || std::memcmp(link.data(), this->bytes(), bytes) == 0));
    link.release();
  }

  int near = -1, far = -1;
  std::unique_ptr<SendLink> near_send, far_send;
  std::unique_ptr<RecvLink> near_recv, far_recv;
  std::vector<std::uint32_t> data = std::vector<std::uint32_t>(kLong.slice_bytes / 4);
  std::uint64_t sequence = 0;
};

}  // namespace

TEST_CASE("whoever only receives leaves a tail unread, acknowledges nothing, and acknowledges all when it waits") {
  Ends links;
  const auto pass = [&](std::size_t bytes) {
    links.send(*links.near_send, bytes);
    links.expect(*links.far_recv, bytes);
  };
  const auto wait = [&] {
    for (int looks = 0; looks < 100; ++looks) REQUIRE(links.far_recv->try_step(nullptr, 4) == nullptr);
  };
  for (int step = 0; step < 1000; ++step) pass(1024);  // while its window grows the kernel acknowledges at once
  wait();
  for (int step = 0; step < 5; ++step) pass(1024);
  CHECK(queued(links.far, SIOCINQ) == kTail);
  CHECK(queued(links.near, SIOCOUTQ) > 4 * 1024);  // the kernel may have answered the first for the window's sake
  wait();
  CHECK(queued(links.far, SIOCINQ) == 0);
  CHECK(queued(links.near, SIOCOUTQ) == 0);
  pass(4);
}

TEST_CASE("a rank that receives all the time owes no more than eight steps when it waits for another") {
  Ends links;
  for (int step = 0; step < 50; ++step) {
    links.send(*links.near_send, 100);
    links.expect(*links.far_recv, 100);
    (void)links.far_recv->try_step(nullptr, 100);  // one look
    CHECK(queued(links.near, SIOCOUTQ) <= 9 * static_cast<int>(100 + 1 + kTail + sizeof(StepHeader)));
  }
}

TEST_CASE("who has answered until now acknowledges at once, too, when it waits") {
  Ends links;
  const auto pass = [&](SendLink& send, RecvLink& recv) {
    links.send(send, 4);
    links.expect(recv, 4);
  };
  for (int round = 0; round < 50; ++round) {
    pass(*links.near_send, *links.far_recv);
    pass(*links.far_send, *links.near_recv);
  }
  for (int step = 0; step < 4; ++step) {
    pass(*links.near_send, *links.far_recv);
    for (int looks = 0; looks < 100; ++looks) REQUIRE(links.far_recv->try_step(nullptr, 4) == nullptr);
    if (step > 0) CHECK(queued(links.near, SIOCOUTQ) == 0);  // the first leaves nothing to be read
  }
}

TEST_CASE("a long step leaves a tail unread, too, and the next one follows it") {
  Ends links;
  for (const std::size_t bytes : {8, 16384, 8, 16384, 5000, 8}) {
    links.send(*links.near_send, bytes);
    links.expect(*links.far_recv, bytes);
  }
  CHECK(queued(links.far, SIOCINQ) == kTail);
}

// Two segments of one length in a row are what the kernel takes for the other side's largest; after that it
// acknowledges all longer ones at once. What is sent, in calls of one size or of several, is made of elements of four
// bytes mostly.
TEST_CASE("no step is as long as the one before, whether steps come back between them or not") {
  Ends links;
  const auto pass = [&](SendLink& send, RecvLink& recv, std::size_t bytes) {
    links.send(send, bytes);
    links.expect(recv, bytes);
  };
  pass(*links.near_send, *links.far_recv, 8);
  int before = 0;
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    for (unsigned bits = pattern | 256U; bits != 0; bits /= 2) {
      if (bits % 2 != 0) pass(*links.far_send, *links.near_recv, 8);
      const std::size_t bytes = pattern % 3 == 0 ? 8 + 4 * (bits % 4) : 8;
      const int left = queued(links.far, SIOCINQ);
      links.send(*links.near_send, bytes);
      const int length = queued(links.far, SIOCINQ) - left;
      CHECK(length != before);
      before = length;
      links.expect(*links.far_recv, bytes);
    }
  }
}

TEST_CASE("where steps go both ways nothing is left unread") {
  Ends links;
  for (int round = 0; round < 5; ++round) {
    for (const auto& [send, recv] : {std::pair(links.near_send.get(), links.far_recv.get()),
                                     std::pair(links.far_send.get(), links.near_recv.get())}) {
      links.send(*send, 8);
      links.expect(*recv, 8);
    }
    CHECK(queued(links.near, SIOCINQ) == 0);
    CHECK(queued(links.far, SIOCINQ) == 0);
  }
}

TEST_CASE("between hosts nothing is left unread, nor sent to be skipped") {
  Ends links("127.0.0.2");
  for (int step = 0; step < 4; ++step) {
    links.send(*links.near_send, 8);
    CHECK(queued(links.far, SIOCINQ) == static_cast<int>(sizeof(StepHeader)) + 8 + step % 2);
    links.expect(*links.far_recv, 8);
    CHECK(queued(links.far, SIOCINQ) == 0);
  }
}

TEST_CASE("links that close with a tail unread do not reset the connection: what they had sent arrives") {
  Ends links;
  links.send(*links.near_send, 4);
  links.send(*links.near_send, 4);
  links.sequence = 1;
  links.expect(*links.far_recv, 4);
  links.sequence = 2;
  links.expect(*links.far_recv, 4);
  REQUIRE(queued(links.far, SIOCINQ) == kTail);
  links.send(*links.far_send, 1024);
  links.far_send.reset();
  links.far_recv.reset();
  links.expect(*links.near_recv, 1024);
  try {
    for (int tries = 0; tries < 1000; ++tries) (void)links.near_recv->try_step(nullptr, 4);
    FAIL("the end was not noticed");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("closed its connection") != std::string::npos);
  }
}

TEST_CASE("a stream that comes byte by byte is the same steps") {
  Ends from;
  Ends to;
  const std::array<std::size_t, 9> sizes{4, 0, 1024, 8, 0, 5000, 16384, 300, 4};
  for (const std::size_t bytes : sizes) from.send(*from.near_send, bytes);
  std::size_t step = 0;
  std::vector<std::byte> into(kLong.slice_bytes);
  for (std::byte one{}; ::recv(from.far, &one, 1, MSG_DONTWAIT) == 1;) {
    REQUIRE(::send(to.near, &one, 1, 0) == 1);
    for (int looks = 0; looks < 3 && step < sizes.size(); ++looks) {
      const StepHeader* header = to.far_recv->try_step(into.data(), sizes[step]);
      if (header == nullptr) continue;
      CHECK(header->bytes == sizes[step]);
      CHECK(header->signature.sequence == step + 1);
      CHECK((sizes[step] == 0 || std::memcmp(to.far_recv->data(), from.bytes(), sizes[step]) == 0));
      to.far_recv->release();
      ++step;
    }
  }
  CHECK(step == sizes.size());
}
