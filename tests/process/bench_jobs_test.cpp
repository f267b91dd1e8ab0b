// SPDX-License-Identifier: Apache-2.0
// Every bench program as a job of real processes, with every value checked.
#include <deque>

#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace {

using namespace rondo::test;

const Words kPrograms{"all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "broadcast_perf", "reduce_perf",
                      "gather_perf",     "scatter_perf",    "alltoall_perf",       "sendrecv_perf",  "barrier_perf"};
const Words kWorlds{"1", "2", "3", "4", "7", "8"};
const Words kTransports{"shm", "tcp"};

Words bench(const std::string& program) {
  return {tool(program), "-b", "8", "-e", "256K", "-f", "32", "-n", "1", "-w", "0", "-c", "1"};
}

void check_no_wrong_value(const Ended& ended) {
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("Out of bounds values : 0 OK") != std::string::npos);
}

void run_case(int program, int world, int transport) {
  const auto at = [](const Words& words, int i) { return words[static_cast<std::size_t>(i)]; };
  CAPTURE(at(kPrograms, program), at(kWorlds, world), at(kTransports, transport));
  check_no_wrong_value(run(rondorun({"--nproc-per-node", at(kWorlds, world)}) + bench(at(kPrograms, program)),
                           {.environment = {"RONDO_TRANSPORT=" + at(kTransports, transport)}}));
}

}  // namespace

TEST_CASE("bench programs as jobs: every pair of program, number of ranks and transport") {
  const auto size = [](const Words& words) { return static_cast<int>(words.size()); };
  PairwiseCases cases({size(kPrograms), size(kWorlds), size(kTransports)}, rotating_seed());
  for (const auto& chosen : cases.all()) run_case(chosen[0], chosen[1], chosen[2]);
}

TEST_CASE("bench programs as jobs: the full product", "[.full]") {
  for (int program = 0; program < static_cast<int>(kPrograms.size()); ++program) {
    for (int world = 0; world < static_cast<int>(kWorlds.size()); ++world) {
      for (const int transport : {0, 1}) run_case(program, world, transport);
    }
  }
}

TEST_CASE("bench programs on three hosts, IPv4 and IPv6 alone") {
  if (!namespaces_possible()) return;
  const std::string prefix = GENERATE("10.77.0.", "fd77::");
  const std::string length = prefix == "fd77::" ? "/64" : "/24";
  const Host bridge;
  std::deque<Host> hosts(3);
  connect_all(bridge, hosts);
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].add_address(prefix + std::to_string(i + 1) + length);
  const SecretFile secret("hosts");
  for (const auto& program : kPrograms) {
    CAPTURE(prefix, program);
    std::deque<Running> launchers;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      launchers.emplace_back(hosts[i].inside(
          rondorun({"--nnodes", "3", "--node-rank", std::to_string(i), "--nproc-per-node", std::to_string(1 + i % 2),
                    "--master-addr", prefix + "1", "--secret-file", secret.path, "--join-timeout", "20"}) +
          bench(program)));
    }
    check_no_wrong_value(launchers[0].wait());
    for (const std::size_t i : {1U, 2U}) {
      const auto ended = launchers[i].wait();
      INFO(ended.out << ended.err);
      CHECK(ended.code == 0);
    }
  }
}
