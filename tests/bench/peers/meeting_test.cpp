// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/meeting.hpp"

#include "comm/base/fd.hpp"
#include "tests/support/catch.hpp"

TEST_CASE("calls in a row take from the first rank's first begin to the last rank's last end") {
  const rondo::Fd file(::memfd_create("meeting", MFD_CLOEXEC));
  rondo::peers::Meeting meeting("/proc/self/fd/" + std::to_string(file.get()), 0, 3, rondo::peers::Waits::spin, [] {});
  const rondo::peers::Stamp stamps[3][2] = {{{11, 12}, {13, 19}}, {{10, 14}, {15, 18}}, {{12, 13}, {14, 20}}};
  for (int rank = 0; rank < 3; ++rank) std::copy_n(stamps[rank], 2, meeting.stamps(rank));
  CHECK(meeting.seconds_of_all(2) == 10);
  CHECK(meeting.seconds_of_all(1) == 4);
  meeting.stamps(0)[0].begin = 9;
  CHECK(meeting.seconds_of_all(2) == 11);
  meeting.stamps(0)[1].end = 21;
  CHECK(meeting.seconds_of_all(2) == 12);
}
