// SPDX-License-Identifier: Apache-2.0
// Which way calls of a kind go, by how long those before took.
#include "comm/node/ways/way_times.hpp"

#include "tests/support/catch.hpp"

using namespace rondo;
using comm::WayTimes;

namespace {

constexpr int kFirst = comm::threshold::kFirstCopies;

// How many of the calls went as copies, where each way always takes as long.
int copies_of(WayTimes& times, bool copy_promises, std::size_t calls, float rings_us, float copy_us) {
  int copies = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    const bool copy = times.next(copy_promises) == WayTimes::Way::copy;
    times.took(copy ? copy_us : rings_us);
    copies += copy ? 1 : 0;
  }
  return copies;
}

}  // namespace

TEST_CASE("first goes the way that promises more, then each some times, then what took less") {
  WayTimes kept, disproved, confirmed;
  CHECK(copies_of(kept, true, kFirst, 12, 10) == kFirst);
  CHECK(copies_of(kept, true, 8, 12, 10) == 0);
  CHECK(copies_of(kept, true, 2016, 12, 10) == 2016);
  CHECK(copies_of(kept, true, 8, 12, 10) == 0);  // both once more
  CHECK(copies_of(kept, true, 2016, 12, 10) == 2016);
  CHECK(copies_of(disproved, true, kFirst + 8, 10, 12) == kFirst);
  CHECK(copies_of(disproved, true, 16, 10, 12) == 16);
  CHECK(disproved.meets());
  CHECK(copies_of(disproved, true, 32, 10, 12) == 0);  // of those that meet, which are few
  CHECK_FALSE(disproved.meets());
  CHECK(copies_of(disproved, true, 1, 10, 12) == 1);
  CHECK(disproved.meets());
  CHECK(copies_of(disproved, true, 23, 10, 12) == 15);
  CHECK_FALSE(confirmed.meets());
  CHECK(copies_of(confirmed, false, comm::threshold::kFirstRings, 10, 12) == 0);
  CHECK(copies_of(confirmed, false, 16, 10, 12) == 16);
  CHECK(copies_of(confirmed, false, 40, 10, 12) == 0);
  CHECK_FALSE(confirmed.meets());
}

TEST_CASE("of copies that need not meet only a few in a row do, from which the other way is tried in time") {
  WayTimes times;
  const auto meetings_of = [&](int calls, float rings_us, float copy_us) {
    int meetings = 0;
    for (int call = 0; call < calls; ++call) {
      if (times.goes_on()) continue;
      times.took(times.next(true) == WayTimes::Way::copy ? copy_us : rings_us);
      ++meetings;
    }
    return meetings;
  };
  CHECK(meetings_of(kFirst, 12, 10) == kFirst / 128 + 1);
  CHECK(meetings_of(24, 12, 10) == 24);  // both are tried
  CHECK(meetings_of(2000, 12, 10) == 2000 / 128 + 1);
  CHECK(meetings_of(24, 12, 10) == 24);
  CHECK(meetings_of(2 * 128 + 1, 12, 15) == 3);  // the median of the latest five: slower than rings were
  CHECK(meetings_of(24, 12, 15) == 24);
  CHECK(meetings_of(32, 12, 15) == 32);  // rings, of which those meet that are counted here
}

TEST_CASE("a copy that is hardly faster is not worth a meeting") {
  WayTimes times;
  copies_of(times, false, comm::threshold::kFirstRings + 24, 10, 9.8F);
  CHECK(copies_of(times, false, 32, 10, 9.8F) == 0);
}

TEST_CASE("a way that takes much longer is tried no longer than it takes to see that") {
  WayTimes copies, rings;
  CHECK(copies_of(copies, false, comm::threshold::kFirstRings, 10, 16) == 0);
  CHECK(copies_of(copies, false, 5, 10, 16) == 5);
  CHECK(copies_of(copies, false, 40, 10, 16) == 0);
  CHECK(copies_of(rings, true, kFirst, 16, 10) == kFirst);
  CHECK(copies_of(rings, true, 4, 13, 10) == 0);
  CHECK(copies_of(rings, true, 2016, 13, 10) == 2016);
}

TEST_CASE("what was slow at first does not count") {
  WayTimes times;
  CHECK(copies_of(times, true, kFirst - 3, 5000, 90'000) == kFirst - 3);
  CHECK(copies_of(times, true, 3, 5000, 3000) == 3);
  CHECK(copies_of(times, true, 2, 90'000, 3000) == 0);
  CHECK(copies_of(times, true, 6, 3500, 3000) == 0);
  CHECK(copies_of(times, true, 13, 3500, 90'000) == 13);
  CHECK(copies_of(times, true, 100, 3500, 3000) == 100);
}

TEST_CASE("what takes longer than the other did is compared with it again, and kept if it was but disturbed") {
  WayTimes slower, disturbed;
  for (WayTimes* times : {&slower, &disturbed}) {
    CHECK(copies_of(*times, true, kFirst + 68, 12, 10) == kFirst + 60);
    CHECK(copies_of(*times, true, 3, 12, 15) == 3);
    CHECK(copies_of(*times, true, 8, 12, 15) == 0);
  }
  CHECK(copies_of(slower, true, 16, 12, 15) == 16);
  CHECK(copies_of(slower, true, 32, 12, 15) == 0);
  CHECK(copies_of(disturbed, true, 100, 12, 10) == 100);
}
