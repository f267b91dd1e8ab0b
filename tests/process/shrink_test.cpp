// SPDX-License-Identifier: Apache-2.0
// The survivors of a killed rank go on: processes started by hand, so that no launcher ends the job.
#include <unistd.h>

#include <deque>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

TEST_CASE("survivors shrink to a communicator that works, over any transport") {
  const int victim = GENERATE(1, 3);  // rank 0 serves the rendezvous, and nobody can meet without one
  const std::string transport = GENERATE("shm", "tcp");
  constexpr int kRanks = 4;
  // One host: the number names the job, and no such port is bound.
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000);
  std::deque<Running> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back(
        std::vector<std::string>{tool("shrinker")},
        Running::How{.environment = {"RANK=" + std::to_string(r), "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
                                     "MASTER_PORT=" + port, "RONDO_TRANSPORT=" + transport}});
  }
  for (auto& rank : ranks) rank.lines("joined ", 1);
  auto& killed = ranks[static_cast<std::size_t>(victim)];
  killed.signal(SIGKILL);
  killed.wait();
  for (int r = 0; r < kRanks; ++r) {
    if (r == victim) continue;
    const auto ended = ranks[static_cast<std::size_t>(r)].wait();
    const int now = r < victim ? r : r - 1;
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("lost " + std::to_string(victim) + "\n") != std::string::npos);
    CHECK(ended.out.find("shrunk rank " + std::to_string(now) + " of 3, sum 3, split " + (now % 2 == 0 ? "2" : "1")) !=
          std::string::npos);
  }
}
