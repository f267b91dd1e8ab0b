// SPDX-License-Identifier: Apache-2.0
// Who holds up a call, from what is known of each rank.
#include "comm/team/standing.hpp"

#include <string>

#include "comm/team/team.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::comm;

namespace {

using Ranks = std::vector<int>;

Standing in(std::uint64_t sequence, bool waits = false, bool stopped = false) {
  return {.known = true, .waits = waits, .stopped = stopped, .at = {.sequence = sequence}};
}
const Standing kSilent{};
constexpr bool kWaits = true, kStopped = true;

}  // namespace

TEST_CASE("standing: a rank that dies while it reports a failure is named") {
  FailureRecord record{};
  record.state = FailureRecord::writing(3);
  const Failure failure(0, record, {});
  REQUIRE(failure.raised());
  const rondo::Error error = failure.error();
  CHECK(error.error_code() == rondo::ErrorCode::peer_lost);
  CHECK(error.culprit() == 3);
  CHECK(std::string(error.what()) == "rank 3 died, or was stopped, while it was reporting a failure");
}

TEST_CASE("standing: the rank furthest behind is late, not those that wait for it") {
  CHECK(find_late(std::vector{in(5, kWaits), in(4, kWaits), in(3)}, 5) == Ranks{2});
  CHECK(find_late(std::vector{in(5, kWaits), in(4), in(4), in(5)}, 5) == Ranks{1, 2});
  CHECK(find_late(std::vector{in(5, kWaits), in(4, kWaits), in(4)}, 5) == Ranks{2});
}

TEST_CASE("standing: a rank that waits behind is late only when nobody else can be") {
  CHECK(find_late(std::vector{in(5, kWaits), in(4, kWaits), kSilent}, 5) == Ranks{2});
  CHECK(find_late(std::vector{in(5, kWaits), in(4), kSilent}, 5) == Ranks{1});
  CHECK(find_late(std::vector{in(5, kWaits), in(4, kWaits, kStopped), kSilent}, 5) == Ranks{1});
  CHECK(find_late(std::vector{in(5, kWaits), in(4, kWaits), in(5)}, 5) == Ranks{1});
}

TEST_CASE("standing: when all have entered, whoever is stopped is late, and else nobody") {
  CHECK(find_late(std::vector{in(5, kWaits), in(5, !kWaits, kStopped), in(7)}, 5) == Ranks{1});
  CHECK(find_late(std::vector{in(5, kWaits), in(5), in(7)}, 5) == Ranks{});
}

TEST_CASE("standing: that a rank has entered none is said when it is known") {
  const Placement place{.host = "h", .pid = 7};
  CHECK(describe_late(1, place, in(0)) ==
        "; the last collective that rank 1 (host h, pid 7) is known to have entered is none");
  CHECK(describe_late(1, place, kSilent) ==
        "; rank 1 (host h, pid 7) does not answer, and what it has entered is not known");
  CHECK(describe_late(1, place, in(0, !kWaits, kStopped)) ==
        "; rank 1 (host h, pid 7) is stopped; the last collective that rank 1 is known to have entered is none");
}

TEST_CASE("standing: what a rank waits in is said") {
  const auto said = [](const Standing& standing) { return describe_late(1, {.host = "h", .pid = 7}, standing); };
  Standing receiving = in(0);
  receiving.message = PackedMessage(false, 12);
  CHECK(said(receiving).ends_with(" is none, and it waits in recv from rank 12"));
  receiving.message = PackedMessage(true, 0);
  CHECK(said(receiving).ends_with(" is none, and it waits in send to rank 0"));
  receiving.message = PackedMessage(false, -1);
  CHECK(said(receiving).ends_with(" is none, and it waits in recv from any rank"));
  CHECK(said(in(4, kWaits)).ends_with(", where it waits for others"));
}
