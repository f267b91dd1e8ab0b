// SPDX-License-Identifier: Apache-2.0
// The rod's temperatures do not depend on how many ranks compute it, nor on whether they are processes or threads, nor
// on whether one of them goes halfway.
#include <algorithm>

#include "tests/examples/trainings.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

namespace {

std::map<std::string, std::string> heat(const std::vector<std::string>& command) {
  const Ended ended = run(command);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  return result_of(ended.out);
}

}  // namespace

TEST_CASE("a rod has the same temperatures whoever computes it") {
  const auto alone = heat({tool("heat")});
  CHECK(alone.at("ranks") == "1");
  auto threads = heat({tool("heat"), "3"}), processes = heat(rondorun({"--nproc-per-node", "4", tool("heat")}));
  CHECK(threads["ranks"] == "3");
  CHECK(threads["hash"] == alone.at("hash"));
  CHECK(processes["ranks"] == "4");
  CHECK(processes["hash"] == alone.at("hash"));
}

TEST_CASE("when a rank leaves, the others finish its part of the rod, too") {
  const auto alone = heat({tool("heat")});
  for (const char* leaves : {"0", "1", "3"}) {
    const auto shrunk = heat({tool("heat"), "4", leaves});
    INFO(leaves);
    CHECK(shrunk.at("ranks") == "3");
    CHECK(shrunk.at("hash") == alone.at("hash"));
  }
}

TEST_CASE("an example does nothing with a word that is no number, or no number of a rank") {
  const std::string place = "file:///nonexistent/meeting";
  const std::vector<std::vector<std::string>> lines{{"heat", "four"},
                                                    {"heat", "0"},
                                                    {"heat", "3x"},
                                                    {"heat", "99999999999"},
                                                    {"heat", "4", "1x"},
                                                    {"heat", "4", "4"},
                                                    {"heat", "4", "1", "2"},
                                                    {"elastic", place, "0"},
                                                    {"elastic", place, "0", "3x"},
                                                    {"elastic", place, "x", "3"}};
  for (const auto& line : lines) {
    std::vector<std::string> command{tool(line.front())};
    command.insert(command.end(), line.begin() + 1, line.end());
    const Ended ended = run(command);
    INFO(Catch::Detail::stringify(line) << ended.out << ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.out.empty());
    CHECK(ended.err.starts_with(line.front() + ": "));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  }
}
