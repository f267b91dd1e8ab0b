// SPDX-License-Identifier: Apache-2.0
// Over sequenced-packet sockets, where one read takes what one write has sent.
#include "comm/transport/tcp_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;

namespace {

constexpr FifoShape kShape{.slots = 4, .slice_bytes = 1024};
constexpr std::size_t kSlices = 16, kStepsOfAWrite = 64;
constexpr std::size_t kStep = sizeof(StepHeader) + kShape.slice_bytes;

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    there = Fd(ends[1]);
    std::tie(send, recv) = make_tcp_links(Fd(ends[0]), 1, kShape);
    std::iota(data.begin(), data.end(), std::uint32_t{0});
  }
  void post(std::size_t step) {
    REQUIRE(send->ready());
    const std::byte* begin = reinterpret_cast<const std::byte*>(data.data()) + step % kSlices * kShape.slice_bytes;
    send->send({.sequence = 1, .count = data.size()}, begin, kShape.slice_bytes);
  }
  ssize_t take(std::vector<std::byte>& into) {
    into.resize(64 * kStep);
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
  REQUIRE(pair.take(got) == static_cast<ssize_t>(3 * kStep));
  for (std::size_t step = 0; step < 3; ++step) {
    const auto* values = reinterpret_cast<const std::uint32_t*>(got.data() + step * kStep + sizeof(StepHeader));
    CHECK(std::equal(values, values + kShape.slice_bytes / 4, pair.data.data() + step * kShape.slice_bytes / 4));
  }
}

TEST_CASE(
    "what lies with the caller needs no slot: as many steps as one write takes, and asking for one more sends them") {
  Pair pair;
  std::vector<std::byte> got;
  for (std::size_t step = 0; step < kStepsOfAWrite; ++step) pair.post(step);
  CHECK(pair.take(got) == -1);
  pair.post(kStepsOfAWrite);
  CHECK(pair.take(got) == static_cast<ssize_t>(kStepsOfAWrite * kStep));
  CHECK(pair.send->flushed());
  CHECK(pair.take(got) == static_cast<ssize_t>(kStep));
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
  REQUIRE(all.size() == 2 * 3 * kShape.slots * kStep);
  for (std::size_t step = 0; step < 3 * kShape.slots; ++step) {
    const std::byte* bytes = all.data() + (2 * step + 1) * kStep + sizeof(StepHeader);
    CHECK(std::all_of(bytes, bytes + kShape.slice_bytes, [&](std::byte b) { return b == std::byte(step + 1); }));
  }
}
