// SPDX-License-Identifier: Apache-2.0
// Launchers on separate hosts.
#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
class Job {
 public:
  explicit Job(std::string master) : master_(std::move(master)) {}
  Words node(int rank, const Words& program) const {
    return rondorun({"--nnodes", "2", "--node-rank", std::to_string(rank), "--nproc-per-node", "2", "--master-addr",
                     master_, "--secret-file", secret_.path, "--join-timeout", "20"}) +
           program;
  }

 private:
  SecretFile secret_;
  std::string master_;
};

void reduce_on(const Host& left, const Host& right, const std::string& master) {
  const Job job(master);
  Running first(left.inside(job.node(0, {tool("reducer"), "reduce"})));
  Running second(right.inside(job.node(1, {tool("reducer"), "reduce"})));
  const Ended ended[] = {first.wait(), second.wait()};
  for (const auto& node : ended) {
    INFO(node.out << node.err);
    CHECK(node.code == 0);
  }
  for (const char* rank : {"[0]", "[1]"})
    CHECK(ended[0].out.find(std::string(rank) + " sums are right") != std::string::npos);
  for (const char* rank : {"[2]", "[3]"})
    CHECK(ended[1].out.find(std::string(rank) + " sums are right") != std::string::npos);
}

}  // namespace

TEST_CASE("two hosts, each with a decoy interface") {
  if (!namespaces_possible()) return;
  const Host left, right;
  left.add_decoy("192.168.99.1/24");
  right.add_decoy("192.168.99.1/24");
  connect(left, right);
  left.add_address("10.77.0.1/24");
  right.add_address("10.77.0.2/24");
  reduce_on(left, right, "10.77.0.1");
}

TEST_CASE("two hosts that have IPv6 alone") {
  if (!namespaces_possible()) return;
  const Host left, right;
  connect(left, right);
  left.add_address("fd77::1/64");
  right.add_address("fd77::2/64");
  reduce_on(left, right, "fd77::1");
}

TEST_CASE("kill -9 of a rank on one host ends the job on both, with its name") {
  if (!namespaces_possible()) return;
  const Host left, right;
  connect(left, right);
  left.add_address("10.77.0.1/24");
  right.add_address("10.77.0.2/24");
  const Job job("10.77.0.1");
  Running first(left.inside(job.node(0, {tool("reducer"), "loop"})));
  Running second(right.inside(job.node(1, {tool("reducer"), "loop"})));
  const auto here = first.lines("joined ", 2), there = second.lines("joined ", 2);
  const Watched ranks(here), other_ranks(there);
  ::kill(std::stoi(there.front()), SIGKILL);
  const Ended ended[] = {first.wait(), second.wait()};
  for (const auto& node : ended) {
    INFO(node.out << node.err);
    CHECK(node.code == 128 + SIGKILL);
    CHECK(node.err.find("(pid " + there.front() + ") was killed by signal 9 (Killed) on host") != std::string::npos);
  }
  CHECK(ranks.all_gone_within(0s));
  CHECK(other_ranks.all_gone_within(0s));
}
