// SPDX-License-Identifier: Apache-2.0
// A training whose rank is killed ends as one that nobody left: a spare takes the place, nobody else starts again.
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <string>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

TEST_CASE("a training goes on with a spare in place of a rank that is killed, and all have equal parameters") {
  char name[] = "/tmp/rondo-elastic-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(name);
  const std::string place = "file://" + (directory / "meeting").string(), elastic = tool("elastic");
  Running spare({elastic, place});
  std::deque<Running> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(std::vector<std::string>{elastic, place, std::to_string(r), "3"});
  ranks[0].lines("step 1000 done", 1);
  ranks[1].signal(SIGKILL);
  CHECK(ranks[1].wait().signal == SIGKILL);
  const auto check_ended = [](Running& process, const std::string& as) {
    const Ended ended = process.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find(as + " of 3: y = 3.0000 x + -2.0000, equal on all ranks") != std::string::npos);
    return ended;
  };
  for (const int r : {0, 2}) {
    const Ended ended = check_ended(ranks[static_cast<std::size_t>(r)], "rank " + std::to_string(r / 2));
    CHECK(ended.err.find("rank 1 (") != std::string::npos);
    CHECK(ended.out.find("rank " + std::to_string(r) + " of 3 goes on at step 0\n") == 0);
  }
  const Ended joined = check_ended(spare, "rank 2");
  // In a training that was under way, which nobody began anew.
  const auto step = joined.out.find("goes on at step ");
  REQUIRE(step != std::string::npos);
  CHECK(std::atoi(joined.out.c_str() + step + 16) > 1000);
  std::filesystem::remove_all(directory);
}
