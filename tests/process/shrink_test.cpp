// SPDX-License-Identifier: Apache-2.0
// The survivors of a killed rank go on, whether a launcher started them or they were started by hand.
#include <unistd.h>

#include <deque>
#include <regex>
#include <sstream>

#include "tests/process/host.hpp"
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

namespace {

void kill_rank(Running& job, int rank) {
  for (const std::string& line : job.lines("joined ", 4)) {
    std::istringstream words(line);
    int who = -1, pid = -1;
    words >> who >> pid;
    if (who == rank) ::kill(pid, SIGKILL);
  }
}

bool says_end_of(const std::string& err, int rank) {
  return std::regex_search(err, std::regex("rondorun: rank " + std::to_string(rank) +
                                           " \\(pid [0-9]+\\) was killed by signal 9 \\(Killed\\)[^\n;]*; the other "
                                           "ranks went on without it and finished\n"));
}

Ended run_killed(const Words& flags, const Words& how, int victim) {
  Running job(rondorun(Words{"--nproc-per-node", "4"} + flags + Words{"--", tool("shrinker")} + how));
  kill_rank(job, victim);
  return job.wait();
}

}  // namespace

TEST_CASE("under rondorun the survivors go on, and its last words say without whom") {
  const int victim = GENERATE(0, 2);
  const auto ended = run_killed({}, {}, victim);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says_end_of(ended.err, victim));
  for (int now = 0; now < 3; ++now)
    CHECK(ended.out.find("shrunk rank " + std::to_string(now) + " of 3, sum 3") != std::string::npos);
}

TEST_CASE("survivors that ask late are told to end, unless the launcher is told to leave them") {
  const auto ended = run_killed({}, {"late"}, 1);
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(ended.out.find("shrunk") == std::string::npos);
  const auto left = run_killed({"--continue-on-failure"}, {"late"}, 1);
  INFO(left.out << left.err);
  CHECK(left.code == 0);
  CHECK(says_end_of(left.err, 1));
}

TEST_CASE("a rank that fails after the others went on ends the job with its own code") {
  const auto ended = run_killed({}, {"fails"}, 1);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 3);
  CHECK(ended.err.find("rank 3 (pid ") != std::string::npos);
  CHECK(ended.err.find("finished") == std::string::npos);
}
