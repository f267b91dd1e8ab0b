// SPDX-License-Identifier: Apache-2.0
// The rod's temperatures do not depend on how many ranks compute it, nor on whether they are processes or threads, nor
// on whether one of them goes halfway.
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
