// SPDX-License-Identifier: Apache-2.0
// How short calls of 2 to 8 KiB are stored: two ranks whose cores are said to be far, by turns on one thread, so that
// nothing depends on where it runs.
#include <rondo/collective.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "comm/node/ways/short_calls.hpp"
#include "comm/setup/config.hpp"
#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace std::chrono_literals;

namespace {

constexpr FifoShape kShape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 1 << 16};
constexpr int kRanks = 2;
// Elements that a rank brings; the last: the longest that is short at all.
constexpr std::size_t kUnweighed = (2 << 10) / 4, kMost = (4 << 10) / 4, kMostOfTwo = (16 << 10) / 4;

struct Node {
  Node() : memory(map_anonymous(Segment::bytes(kRanks, kShape))), segment(memory.data(), kRanks, kShape) {
    auto made = std::make_shared<std::vector<Fd>>();
    for (int rank = 0; rank < kRanks; ++rank) made->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    bells = made;
  }
  void say_far() const {
    for (int rank = 0; rank < kRanks; ++rank) segment.distance(rank).far = 1;
  }
  Mapping memory;
  Segment segment;
  std::shared_ptr<const std::vector<Fd>> bells;
};

Team::Parts parts_of(const Node& node, int rank) {
  Team::Parts parts;
  parts.rank = rank;
  for (int r = 0; r < kRanks; ++r) parts.placement.push_back({.local_rank = r, .segment_index = r, .host = "here"});
  parts.segment = node.segment;
  parts.bells = Doorbells(node.segment, node.bells);
  parts.crowded = false;
  return parts;
}

// The call-th value at a place of what a rank brings.
std::int32_t value(int rank, std::size_t at, int call) {
  return static_cast<std::int32_t>(at) * 7 + rank * 1'000'000 + call * 100'000;
}

class Rank {
 public:
  Rank(const Node& node, int rank)
      : team_(parts_of(node, rank)),
        chooser_(facts_of(team_), Tuning{}),
        board_(team_, Config{}),
        flow_(team_, board_, chooser_),
        stores_(node.segment, rank, false),
        calls_(chooser_, board_, flow_, stores_) {}

  // `brings`: elements, of which the other rank gets all, or its own half.
  void publish(Collective collective, std::size_t brings) {
    const bool has_parts = row_of(collective).send == Extent::world;
    send_.resize(brings), recv_.assign(2 * brings, -1);
    for (std::size_t at = 0; at < brings; ++at) send_[at] = value(team_.rank(), at, number_);
    call_ = {.collective = collective,
             .send = send_.data(),
             .recv = recv_.data(),
             .count = has_parts ? brings / 2 : brings,
             .dtype = DataType::i32,
             .root = row_of(collective).rooted ? 0 : -1};
    if (!chooser_.is_short(call_)) throw std::logic_error("not a short call");
    plan_ = calls_.plan(call_);
    Signature signature = signature_of(call_);
    signature.sequence = static_cast<std::uint64_t>(++number_);
    board_.note(signature, signature.sequence, hash_of(signature));
    calls_.publish(plan_, call_, 10s);
  }
  void collect() { calls_.collect(plan_, call_); }
  bool takes(Collective collective, std::size_t brings) const {
    return chooser_.is_short({.collective = collective, .count = brings, .dtype = DataType::i32, .root = 0});
  }
  std::size_t fits_a_ring() const { return flow_.most_call_bytes() / sizeof(std::int32_t); }
  // Of the other rank's, as the result has it.
  bool has_theirs() const {
    const int other = 1 - team_.rank(), call = number_ - 1;
    const std::size_t skipped = call_.count < send_.size() ? as_size(team_.rank()) * call_.count : 0;
    const bool sums = row_of(call_.collective).reduces;
    for (std::size_t at = 0; at < call_.count; ++at) {
      const std::int32_t theirs = value(other, at + skipped, call), mine = value(team_.rank(), at + skipped, call);
      const std::size_t first = row_of(call_.collective).recv == Extent::world ? as_size(other) * call_.count : 0;
      if (recv_[first + at] != (sums ? theirs + mine : theirs)) return false;
    }
    return true;
  }

 private:
  Team team_;
  Chooser chooser_;
  Board board_;
  Flow flow_;
  StoreChoice stores_;
  ShortCalls calls_;
  ShortCalls::Plan plan_;
  Call call_;
  std::vector<std::int32_t> send_, recv_;
  int number_ = 0;
};

struct Ranks {
  Node node;
  Rank first{node, 0}, second{node, 1};
  std::uint64_t written(int rank) const { return node.segment.distance(rank).written; }
  void call(Collective collective, std::size_t brings) {
    node.say_far();
    first.publish(collective, brings);
    second.publish(collective, brings);
    first.collect();
    second.collect();
  }
};

}  // namespace

TEST_CASE("a short call to a far core moves the same; its ends say that they wrote, and look, from 2 KiB on") {
  const std::size_t brings = GENERATE(as<std::size_t>(), kUnweighed, kUnweighed + 2, kMost - 2, kMost);
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    CAPTURE(name_of(collective), brings);
    Ranks ranks;
    const int from = collective == Collective::broadcast ? 0 : 1, to = 1 - from;
    for (int call = 1; call <= 8; ++call) {
      ranks.call(collective, brings);
      CHECK((to == 0 ? ranks.first : ranks.second).has_theirs());
      const bool weighs = brings > kUnweighed;
      CHECK(ranks.written(from) == (weighs ? static_cast<std::uint64_t>(call) : 0));
      CHECK(ranks.written(to) == 0);
      // One look does not make cores far, so it takes back what was said.
      if (call == 1) CHECK(ranks.node.segment.distance(to).far == (weighs ? 0 : 1));
    }
  }
}

TEST_CASE("from or to a root, what is too long to lie behind an arrival goes to a ring, where one has room for it") {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    CAPTURE(name_of(collective));
    Ranks ranks;
    const std::size_t most = ranks.first.fits_a_ring();
    REQUIRE(most > kMost);
    REQUIRE(most < kMostOfTwo);
    CHECK(ranks.first.takes(collective, most));
    CHECK_FALSE(ranks.first.takes(collective, most + 1));
    CHECK(ranks.first.takes(Collective::all_gather, kMostOfTwo));
    CHECK_FALSE(ranks.first.takes(Collective::all_gather, kMostOfTwo + 1));
    const Rank& to = collective == Collective::broadcast ? ranks.second : ranks.first;
    ranks.call(collective, most);
    for (int line = 0; line < 2 * kRanks; ++line) {
      const auto& body = ranks.node.segment.arrival(line / 2, static_cast<std::uint64_t>(line)).body;
      CHECK(std::ranges::all_of(body, [](std::byte value) { return value == std::byte{0}; }));
    }
    for (int call = 1; call <= 50; ++call) {
      ranks.call(collective, call % 3 == 0 ? kMost : most - static_cast<std::size_t>(call));
      CHECK(to.has_theirs());
    }
  }
}

TEST_CASE("two ranks that exchange write what their own caches hold, however far they are") {
  const std::size_t brings = GENERATE(as<std::size_t>(), kUnweighed, kUnweighed + 2, kMost - 2, kMost);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::all_to_all, Collective::reduce_scatter}) {
    CAPTURE(name_of(collective), brings);
    Ranks ranks;
    for (int call = 1; call <= 8; ++call) {
      ranks.call(collective, brings);
      CHECK(ranks.first.has_theirs());
      CHECK(ranks.second.has_theirs());
      CHECK(ranks.written(0) + ranks.written(1) == 0);
      CHECK(ranks.node.segment.distance(0).far == 1);
    }
  }
}

TEST_CASE("of two ranks, each arrives where it has read the other's last arrival") {
  Ranks ranks;
  const auto met = [&](int line) { return ranks.node.segment.arrival(line, 0).meeting.load(); };
  for (std::uint64_t meeting = 1; meeting <= 4; ++meeting) {
    const int of_first = static_cast<int>(meeting % 2), of_second = 1 - of_first;
    ranks.first.publish(Collective::all_reduce, 2);
    CHECK(met(of_first) == meeting);
    CHECK(met(of_second) == meeting - 1);
    ranks.second.publish(Collective::all_reduce, 2);
    CHECK(met(of_second) == meeting);
    ranks.first.collect();
    ranks.second.collect();
    CHECK(ranks.first.has_theirs());
    CHECK(ranks.second.has_theirs());
  }
}
