// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/blame.hpp"

#include <string>

#include "tests/support/catch.hpp"

namespace {

std::string blamed(const std::string& words) {
  std::string all;
  for (const auto& one : rondo::launcher::blamed_in(words))
    all += std::to_string(one.rank) + (one.pid == 0 ? "" : "/" + std::to_string(one.pid)) + " ";
  return all;
}

}  // namespace

TEST_CASE("last words blame ranks of which they say that they are gone") {
  CHECK(blamed("error: rank 2 is lost") == "2 ");
  CHECK(blamed("rank 1 left while rank 0 was waiting for it in all_reduce #3") == "1 ");
  CHECK(blamed("rank 1 left, and what it had sent to rank 0 before does not come: its host has not answered") == "1 ");
  CHECK(blamed("rank 12 (host a, pid 4711) is lost: its process or connection ended") == "12/4711 ");
  CHECK(blamed("rank 3 did not come in time, says rank 0\nrank 4 exited") == "3 4 ");
  CHECK(blamed("rank 5 (host (odd)) died") == "");
  CHECK(blamed("rank 5 (host odd) died.") == "5 ");
}

TEST_CASE("a rank that last words only mention is not blamed") {
  for (const char* words :
       {"shrunk rank 2 of 3, sum 3", "rank 2 of 4: the sum is 6", "rank 2: out of memory", "grown to rank 2",
        "rank 2 and rank 3 disagree on the count of all_reduce #1", "rank 2 (pid 17) of 3", "rank -1 left",
        "rank 99999999999999 is lost", "rank 2 leftovers", "rank 2", "rank ", "rank 2 (", "rank 2 (pid 5 is lost"}) {
    CAPTURE(words);
    CHECK(blamed(words) == "");
  }
}
