// SPDX-License-Identifier: Apache-2.0
// When a rank sends and copies: one rank of a team, over sockets whose other ends the test holds.
#include "comm/call/host_primitives.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <rondo/error.hpp>

#include "comm/setup/config.hpp"
#include "comm/transport/memory.hpp"
#include "comm/transport/tcp_link.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace std::chrono_literals;
using kernels::input;
using kernels::output;

namespace {

constexpr FifoShape kShape{.slots = 4, .slice_bytes = 1024};
constexpr std::size_t kSlice = kShape.slice_bytes, kLong = 4 * kSlice;
constexpr std::byte kIn{1}, kPoison{2}, kReceived{3};
constexpr Signature kSignature{.sequence = 1, .count = kLong};

std::array<Fd, 2> connected() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// Rank 0 of three, or so many.
class Alone {
 public:
  explicit Alone(int ranks = 3) : team_(parts(ranks)), primitives_(team_, Config{}) {
    for (int peer = 1; peer < ranks; ++peer) {
      auto [data, far_data] = connected();
      auto [control, far_control] = connected();
      team_.add_links(peer, make_tcp_links(std::move(data), peer, kShape));
      team_.add_control(peer, std::move(control));
      ends_.push_back(far_data.get());
      controls_.push_back(std::move(far_control));
      senders_.push_back(make_tcp_links(std::move(far_data), 0, kShape).send);
    }
    team_.start();
  }

  HostPrimitives& begin(bool may_hold, std::chrono::milliseconds timeout = 1min) {
    primitives_.begin({.signature = kSignature, .input = in_.data(), .output = out_.data(), .may_hold = may_hold},
                      timeout);
    return primitives_;
  }
  HostPrimitives& begin_sum() {
    primitives_.begin({.signature = kSignature, .input = in_.data(), .output = out_.data(), .reduces = true}, 1min);
    return primitives_;
  }
  std::size_t first_step_to(int peer) const {
    StepHeader header;
    REQUIRE(::recv(ends_[static_cast<std::size_t>(peer - 1)], &header, sizeof header, MSG_PEEK) == sizeof header);
    return header.bytes;
  }
  bool has_come_to(int peer) const {
    std::byte first{};
    return ::recv(ends_[static_cast<std::size_t>(peer - 1)], &first, 1, MSG_PEEK) == 1;
  }
  void send_slice_from(int peer) {
    SendLink& link = *senders_[static_cast<std::size_t>(peer - 1)];
    REQUIRE(link.ready());
    link.send(kSignature, received_.data(), kSlice);
    REQUIRE(link.flushed());
  }
  bool output_is(std::size_t begin, std::size_t end, std::byte value) const {
    return std::all_of(out_.begin() + static_cast<std::ptrdiff_t>(begin),
                       out_.begin() + static_cast<std::ptrdiff_t>(end), [&](std::byte byte) { return byte == value; });
  }

 private:
  Team::Parts parts(int ranks) {
    const Segment segment(memory_.data(), 1, kShape);
    auto bells = std::make_shared<std::vector<Fd>>();
    bells->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Team::Parts parts;
    parts.placement.push_back({.segment_index = 0, .host = "here"});
    for (int node = 1; node < ranks; ++node) parts.placement.push_back({.node = node, .host = "there"});
    parts.segment = segment;
    parts.bells = Doorbells(segment, std::move(bells));
    parts.monitor = std::make_shared<Monitor>();
    return parts;
  }

  Mapping memory_ = map_anonymous(Segment::bytes(1, kShape));
  std::vector<std::byte> in_ = std::vector<std::byte>(kLong, kIn);
  std::vector<std::byte> out_ = std::vector<std::byte>(2 * kLong, kPoison);
  std::vector<std::byte> received_ = std::vector<std::byte>(kSlice, kReceived);
  std::vector<int> ends_;  // owned by senders_
  std::vector<Fd> controls_;
  std::vector<std::unique_ptr<SendLink>> senders_;
  Team team_;
  HostPrimitives primitives_;
};

bool times_out(HostPrimitives& primitives, int from) {
  try {
    recv_copy(primitives, from, output(kLong), kSlice);
  } catch (const Error& error) {
    return error.error_code() == ErrorCode::timeout;
  }
  return false;
}

}  // namespace

TEST_CASE("sends are held from move to move until the rank receives, waits or has finished") {
  enum class Then { receives, waits, finishes };
  Alone rank;
  const Then then = GENERATE(Then::receives, Then::waits, Then::finishes);
  HostPrimitives& primitives = rank.begin(true, then == Then::waits ? 20ms : 60s);
  send(primitives, 1, input(0), kSlice);
  send(primitives, 2, input(kSlice), kSlice);
  CHECK_FALSE(rank.has_come_to(1));
  CHECK_FALSE(rank.has_come_to(2));
  if (then == Then::receives) {
    rank.send_slice_from(1);
    recv_copy(primitives, 1, output(0), kSlice);
  } else if (then == Then::waits) {
    CHECK(times_out(primitives, 1));
  } else {
    primitives.finish();
  }
  CHECK(rank.has_come_to(1));
  CHECK(rank.has_come_to(2));
}

TEST_CASE("who waits elsewhere, too, sends at once and copies at once") {
  Alone rank;
  HostPrimitives& primitives = rank.begin(false);
  send(primitives, 1, input(0), kSlice);
  CHECK(rank.has_come_to(1));
  copy(primitives, input(0), output(0), kLong);
  CHECK(rank.output_is(0, kLong, kIn));
}

TEST_CASE("a long copy is not made before what needs no waiting, but by the end") {
  Alone rank;
  HostPrimitives& primitives = rank.begin(true);
  copy(primitives, input(0), output(0), kLong);
  rank.send_slice_from(1);
  recv_copy(primitives, 1, output(kLong), kSlice);
  CHECK(rank.output_is(kLong, kLong + kSlice, kReceived));
  CHECK(rank.output_is(0, kLong, kPoison));
  primitives.finish();
  CHECK(rank.output_is(0, kLong, kIn));
}

TEST_CASE("a long copy is made while the rank waits for others") {
  Alone rank;
  HostPrimitives& primitives = rank.begin(true, 20ms);
  copy(primitives, input(0), output(0), kLong);
  CHECK(rank.output_is(0, kLong, kPoison));
  CHECK(times_out(primitives, 1));
  CHECK(rank.output_is(0, kLong, kIn));
}

TEST_CASE("a long copy is made before a move that reads or writes there") {
  Alone rank;
  HostPrimitives& primitives = rank.begin(true);
  copy(primitives, input(0), output(0), kLong);
  if (GENERATE(false, true)) {
    send(primitives, 1, output(kSlice), kSlice);
    CHECK(rank.output_is(0, kLong, kIn));
  } else {
    rank.send_slice_from(2);
    recv_copy(primitives, 2, output(kSlice), kSlice);
    primitives.finish();
    CHECK(rank.output_is(kSlice, 2 * kSlice, kReceived));
    CHECK(rank.output_is(2 * kSlice, kLong, kIn));
  }
  primitives.finish();
}

TEST_CASE("a copy of a slice is made at once") {
  Alone rank;
  copy(rank.begin(true), input(0), output(0), kSlice);
  CHECK(rank.output_is(0, kSlice, kIn));
}

TEST_CASE("of two ranks that only move, a step is longer than a slice") {
  const int ranks = GENERATE(2, 3);
  const bool sums = GENERATE(false, true);
  Alone rank(ranks);
  HostPrimitives& primitives = sums ? rank.begin_sum() : rank.begin(false);
  send(primitives, 1, input(0), kLong);
  CHECK(rank.first_step_to(1) == (ranks == 2 && !sums ? kLong : kSlice));
}
