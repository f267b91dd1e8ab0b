// SPDX-License-Identifier: Apache-2.0
// What it costs a rank that it tells the others what it calls, and compares that with what they call: meetings of ranks
// that one thread plays, with all of that and without.
#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

#include "comm/call/signature.hpp"
#include "comm/node/meeting/board.hpp"
#include "comm/setup/config.hpp"
#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::comm;

namespace {

constexpr double kMostNanoseconds = 50;
constexpr int kCalls = 2000, kTurns = 51;

class World {
 public:
  explicit World(int ranks)
      : memory_(map_anonymous(Segment::bytes(ranks, kShape))), segment_{memory_.data(), ranks, kShape} {
    auto bells = std::make_shared<std::vector<Fd>>();
    for (int r = 0; r < ranks; ++r) bells->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    for (int r = 0; r < ranks; ++r) {
      Team::Parts parts;
      parts.rank = r;
      for (int peer = 0; peer < ranks; ++peer)
        parts.placement.push_back({.local_rank = peer, .segment_index = peer, .host = "here"});
      parts.segment = segment_;
      parts.bells = {segment_, bells};
      parts.cores = ranks;
      teams_.emplace_back(std::move(parts));
      boards_.emplace_back(teams_.back(), Config{});
    }
  }

  // Of one rank's call, in ns.
  double time(bool checks) {
    const Signature signature =
        signature_of({.collective = Collective::all_reduce, .count = 2, .dtype = DataType::f32});
    const std::uint64_t hash = hash_of(signature);
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) {
      if (checks) ++sequence_;
      for (std::size_t r = 0; r < boards_.size(); ++r) {
        if (checks) {
          write_history(teams_[r].own_line().calls, boards_[r].note(signature, sequence_, hash));
          boards_[r].begin(std::chrono::seconds(1));
        }
        boards_[r].settle();
        boards_[r].arrive();
      }
      for (Board& board : boards_) board.await_all();
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    return spent.count() / kCalls / static_cast<double>(boards_.size());
  }

 private:
  static constexpr FifoShape kShape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 48 << 10};

  Mapping memory_;
  Segment segment_;
  std::deque<Team> teams_;
  std::deque<Board> boards_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

TEST_CASE("that ranks compare what they call costs a call 50 ns at most") {
  for (const int ranks : {2, 4, 8}) {
    World world(ranks);
    std::vector<double> costs;
    for (int turn = 0; turn < kTurns; ++turn) {
      const double without = world.time(false);
      costs.push_back(world.time(true) - without);
    }
    std::nth_element(costs.begin(), costs.begin() + kTurns / 2, costs.end());
    const double cost = costs[kTurns / 2];
    fmt::print("{} ranks: what names a mismatch costs a rank {:.1f} ns a call, at most {:.0f}\n", ranks, cost,
               kMostNanoseconds);
    CHECK(cost > 0);
    CHECK(cost <= kMostNanoseconds);
  }
}
