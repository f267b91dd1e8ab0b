// SPDX-License-Identifier: Apache-2.0
// Work that is done once by whoever claims it, among ranks as threads: each piece by one of them, seen by all; and what
// the others are told when that one does not go on.
#include "comm/node/meeting/claims.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "comm/setup/config.hpp"
#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3;

// Ranks that share one core, or have one each, as far as they know.
class World {
 public:
  using Body = std::function<void(Team& team, Board& board, Claims& claims)>;
  explicit World(bool crowded = true) : crowded_(crowded) {}

  // Of all ranks, that nobody else has.
  Doorbells make_bells() const {
    auto bells = std::make_shared<std::vector<Fd>>();
    for (int r = 0; r < kRanks; ++r) bells->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return {segment_, std::move(bells)};
  }
  Team::Parts parts(int rank, const Doorbells& bells) const {
    Team::Parts parts;
    parts.rank = rank;
    for (int r = 0; r < kRanks; ++r) parts.placement.push_back({.local_rank = r, .segment_index = r, .host = "here"});
    parts.segment = segment_;
    parts.bells = bells;
    parts.cores = crowded_ ? 2 : kRanks;
    parts.crowded = crowded_;
    return parts;
  }

  // What each rank's body threw: by rank.
  std::vector<std::exception_ptr> run(const Body& body) {
    std::vector<std::exception_ptr> errors(kRanks);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        try {
          Team team(parts(r, bells_));
          Board board(team, Config{});
          Claims claims(team, board);
          body(team, board, claims);
        } catch (...) {
          errors[static_cast<std::size_t>(r)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  static constexpr FifoShape kShape{.slots = 2, .slice_bytes = 4096, .ring_bytes = 48 << 10};

  Mapping memory_ = map_anonymous(Segment::bytes(kRanks, kShape));
  Segment segment_{memory_.data(), kRanks, kShape};
  Doorbells bells_ = make_bells();
  bool crowded_;
};

void meet(Team& team, Board& board, std::uint64_t sequence, std::chrono::milliseconds timeout) {
  Signature signature;
  signature.sequence = sequence;
  signature.collective = Collective::all_reduce;
  write_history(team.own_line().calls, signature);
  board.note(signature, signature.sequence, hash_of(signature));
  board.begin(timeout);
  board.meet();
}

// Rank 0 claims the only piece and then does `instead`, which ends when the others have failed.
std::vector<std::exception_ptr> hold_up(std::chrono::milliseconds timeout, const std::function<void(Team&)>& instead) {
  std::atomic<bool> claimed{false};
  std::atomic<int> failed{0};
  return World().run([&](Team& team, Board& board, Claims& claims) {
    meet(team, board, 1, timeout);
    if (team.rank() != 0) claimed.wait(false);
    try {
      claims.share(
          1, false,
          [&](std::size_t) {
            claimed = true;
            claimed.notify_all();
            instead(team);
            for (int seen = failed; seen < kRanks - 1; seen = failed) failed.wait(seen);
          },
          [](std::size_t, int) {});
    } catch (...) {
      ++failed;
      failed.notify_all();
      throw;
    }
    if (team.rank() != 0) {  // never: or rank 0 would wait for ever
      failed = kRanks;
      failed.notify_all();
    }
  });
}

void await_sleep(const RankLine& line) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (line.sleeping == 0) {
    rondo::test::expect(std::chrono::steady_clock::now() < deadline, "a rank that waits does not sleep");
    std::this_thread::yield();
  }
}

void check_others(const std::vector<std::exception_ptr>& errors, ErrorCode code) {
  CHECK_FALSE(errors[0]);
  for (std::size_t r = 1; r < kRanks; ++r) {
    REQUIRE(errors[r]);
    try {
      std::rethrow_exception(errors[r]);
    } catch (const Error& error) {
      CHECK(error.error_code() == code);
      CHECK(error.culprit() == 0);
    }
  }
}

}  // namespace

TEST_CASE("claims: each piece of each work is done once, and all others take it from who did it") {
  constexpr std::uint64_t kWorks = 3000;
  const bool crowded = GENERATE(true, false);
  const auto seed = rondo::test::rotating_seed();
  INFO("seed " << seed);
  struct Piece {  // plain: that it is seen in order is what claims are for
    std::uint64_t work = 0;
    int by = -1;
  };
  std::array<Piece, Claims::kMost> pieces;
  std::atomic<std::uint64_t> done{0}, taken{0}, wrong{0}, wanted{0};
  const auto errors = World(crowded).run([&](Team& team, Board& board, Claims& claims) {
    std::mt19937_64 random(seed);  // the same on all ranks
    for (std::uint64_t work = 1; work <= kWorks; ++work) {
      const std::size_t count = random() % (Claims::kMost + 1);
      meet(team, board, work, 60s);
      if (team.rank() == 0) wanted += count;
      claims.share(
          count, work % 2 != 0,
          [&](std::size_t piece) {
            if (pieces[piece].work == work) ++wrong;
            const std::size_t from = static_cast<std::size_t>(team.rank()) * count / kRanks,
                              to = static_cast<std::size_t>(team.rank() + 1) * count / kRanks;
            if (!crowded && (piece < from || piece >= to)) ++wrong;  // another's
            pieces[piece] = {work, team.rank()};
            ++done;
          },
          [&](std::size_t piece, int by) {
            if (pieces[piece].work != work || pieces[piece].by != by || by == team.rank()) ++wrong;
            ++taken;
          });
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  CHECK(wrong == 0);
  CHECK(done == wanted);
  CHECK(taken == (kRanks - 1) * wanted);
}

TEST_CASE("claims: who waits for a rank that does not finish its piece names it when time is up") {
  check_others(hold_up(50ms, [](Team&) {}), ErrorCode::timeout);
}

TEST_CASE("claims: a rank that is lost with a piece ends the wait of the others") {
  check_others(hold_up(60s, [](Team& team) { team.fail(ErrorCode::peer_lost, 0, "rank 0 is gone"); }),
               ErrorCode::peer_lost);
}

// How often each was rung for that slept until the piece was done. Sleepers look around from time to time anyway. So
// who does the piece rings bells that nobody hears, and what it rang is counted and passed on.
std::array<eventfd_t, kRanks> rung_for_sleepers() {
  World world;
  std::latch claimed(kRanks);  // and all have left the meeting
  std::array<eventfd_t, kRanks> rung{};
  const auto nothing = [](std::size_t, int) {};
  const auto errors = world.run([&](Team& team, Board& board, Claims& claims) {
    if (team.rank() != 0) {
      meet(team, board, 1, 30s);
      claimed.arrive_and_wait();
      team.bells().drain(team.rank());  // the meeting's
      return claims.share(
          1, false, [](std::size_t) {}, nothing);
    }
    const Doorbells unheard = world.make_bells();
    Team ringing(world.parts(0, unheard));
    Board arriving(ringing, Config{});
    meet(ringing, arriving, 1, 30s);
    const auto hold = [&](std::size_t) {
      for (int r = 1; r < kRanks; ++r) unheard.drain(r);
      claimed.arrive_and_wait();
      for (int r = 1; r < kRanks; ++r) await_sleep(team.segment().line(r));
    };
    Claims(ringing, arriving).share(1, false, hold, nothing);
    for (int r = 1; r < kRanks; ++r) {
      if (::eventfd_read(unheard.fd(r), &rung[static_cast<std::size_t>(r)]) == 0) team.bells().ring(r);
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  return rung;
}

TEST_CASE("claims: who sleeps until a piece is done is woken once by whoever has done it") {
  constexpr int kTries = 30;  // who looks around just then sees it without a bell, beside other work often one of them
  std::array<bool, kRanks> heard{true};
  for (int i = 0; i < kTries && !std::ranges::all_of(heard, std::identity()); ++i) {
    const auto rung = rung_for_sleepers();
    for (const eventfd_t times : rung) CHECK(times <= 1);
    for (std::size_t r = 1; r < kRanks; ++r) heard[r] = heard[r] || rung[r] == 1;
  }
  CHECK(std::ranges::all_of(heard, std::identity()));
}
