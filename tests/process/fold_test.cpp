// SPDX-License-Identifier: Apache-2.0
// Which lines of several ranks become one.
#include "tools/rondorun/fold.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using namespace rondo::launcher;

std::vector<std::string> released(Fold& fold, bool folded = true) {
  std::vector<std::string> lines;
  fold.release(folded, [&](std::string_view prefix, std::string_view text) {
    lines.push_back(std::string(prefix) + std::string(text));
  });
  return lines;
}

}  // namespace

TEST_CASE("lines that three ranks or more wrote are one, in the place of the first") {
  Fold fold;
  fold.add(7, "[7] ", "Traceback:");
  fold.add(7, "[7] ", "rank 7: rank 70 is lost");
  fold.add(-1, "[0] ", "data");
  fold.add(0, "[0] ", "Traceback:");
  fold.add(1, "[1] ", "Traceback:");
  fold.add(0, "[0] ", "rank 0: rank 70 is lost");
  fold.add(1, "[1] ", "rank 1: rank 70 is lost");
  fold.add(1, "[1] ", "something else");
  fold.add(0, "[0] ", "something else");
  CHECK(released(fold) == std::vector<std::string>{
                              "[0-1,7] 3 ranks report: Traceback:", "[0-1,7] 3 ranks report: rank N: rank 70 is lost",
                              "[0] data", "[1] something else", "[0] something else"});
  CHECK(fold.empty());
  CHECK(fold.bytes() == 0);
}

TEST_CASE("what one rank says twice stays two lines, and what ranks say of each other stays theirs") {
  Fold fold;
  for (const int rank : {0, 1, 2}) {
    fold.add(rank, "", "again");
    fold.add(rank, "", "again");
  }
  fold.add(0, "", "rank 1 is lost");
  fold.add(1, "", "rank 0 is lost");
  fold.add(2, "", "rank 0 is lost");
  CHECK(released(fold) == std::vector<std::string>{"[0-2] 3 ranks report: again", "[0-2] 3 ranks report: again",
                                                   "rank 1 is lost", "rank 0 is lost", "rank 0 is lost"});
}

TEST_CASE("in a job that does not fail every line passes as it came") {
  Fold fold;
  for (const int rank : {2, 0, 1}) fold.add(rank, "", "rank " + std::to_string(rank) + " is done");
  CHECK(released(fold, false) == std::vector<std::string>{"rank 2 is done", "rank 0 is done", "rank 1 is done"});
}
