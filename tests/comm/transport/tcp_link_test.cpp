// SPDX-License-Identifier: Apache-2.0
// Over sequenced-packet sockets, where one read takes what one write has sent.
#include "comm/transport/tcp_link.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <numeric>
#include <vector>

#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;

namespace {

constexpr FifoShape kShape{.slots = 4, .slice_bytes = 4096};
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
    const std::byte* begin = reinterpret_cast<const std::byte*>(data.data()) + step * kShape.slice_bytes;
    send->send({.sequence = 1, .count = data.size()}, begin, kShape.slice_bytes);
  }
  ssize_t take(std::vector<std::byte>& into) {
    into.resize(64 * kStep);
    return ::recv(there.get(), into.data(), into.size(), 0);
  }

  Fd there;
  std::unique_ptr<SendLink> send;
  std::unique_ptr<RecvLink> recv;
  std::vector<std::uint32_t> data = std::vector<std::uint32_t>(16 * kShape.slice_bytes / 4);
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

TEST_CASE("when all slots are taken, asking for one more sends them") {
  Pair pair;
  std::vector<std::byte> got;
  for (std::size_t step = 0; step < kShape.slots + 1; ++step) pair.post(step);
  CHECK(pair.take(got) == static_cast<ssize_t>(kShape.slots * kStep));
  CHECK(pair.send->flushed());
  CHECK(pair.take(got) == static_cast<ssize_t>(kStep));
}
