// SPDX-License-Identifier: Apache-2.0
// kill -9 of any rank in the middle of any collective, over any transport, on one node and on two.
#include <rondo/collective.hpp>

#include "tests/process/host.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/pairwise.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

constexpr int kRanks = 4, kCrowd = 8;
struct Where {
  const char *transport, *node;  // the shell knows the node from the rank
};
constexpr Where kWhere[] = {{"shm", ""}, {"tcp", ""}, {"", "node$((RANK / 2))"}, {"", "node$((RANK > 0))"}};

// count: elements, or the looper's own.
void kill_one(const std::string& collective, int victim, const Where& where, std::size_t ranks = kRanks,
              const std::string& count = "") {
  CAPTURE(collective, victim, where.transport, where.node, ranks, count);
  std::string command = "exec " + tool("looper") + " " + collective + " " + where.node;
  if (!count.empty()) command += "'' " + count;
  Running job(rondorun({"--nproc-per-node", std::to_string(ranks), "sh", "-c", command}),
              {.environment = {"RONDO_TRANSPORT=" + std::string(where.transport)}});
  std::vector<std::string> pids(ranks);
  for (const auto& line : job.lines("joined ", ranks)) {
    const auto space = line.find(' ');
    pids[std::stoul(line)] = line.substr(space + 1);
  }
  const Watched watched(pids);
  const auto killed = std::chrono::steady_clock::now().time_since_epoch();
  ::kill(std::stoi(pids[static_cast<std::size_t>(victim)]), SIGKILL);
  const auto reports = job.lines("error at ", ranks - 1);
  const auto ended = job.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 128 + SIGKILL);
  REQUIRE(reports.size() == ranks - 1);
  for (const auto& report : reports) {
    CHECK(report.find("rank " + std::to_string(victim)) != std::string::npos);
    CHECK(std::chrono::microseconds(std::stoll(report)) - killed < 100ms);
  }
  CHECK(watched.all_gone_within(0s));
}

}  // namespace

TEST_CASE("kill -9 of a rank in any collective: every other rank names it within 100 ms") {
  const auto& table = rondo::collective_table();
  PairwiseCases cases({rondo::kCollectiveCount, kRanks, std::size(kWhere)}, rotating_seed());
  for (const auto& chosen : cases.all()) {
    kill_one(std::string(table[static_cast<std::size_t>(chosen[0])].name), chosen[1],
             kWhere[static_cast<std::size_t>(chosen[2])]);
  }
}

// Ranks that outnumber their cores sum once for all, whoever claims a piece.
TEST_CASE("kill -9 of a rank in a sum that all share: every other rank names it within 100 ms") {
  const FewCores two(2);
  for (int turn = 0; turn < 6; ++turn) kill_one("all_reduce", turn, {"shm", ""}, kCrowd, "60000");
}
