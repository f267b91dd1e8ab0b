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

namespace {

// Ranks by hand, one on each of `hosts`, that find rank 0 by `master`.
void reduce_by_hand(const std::vector<const Host*>& hosts, const std::string& master, const std::string& secret) {
  std::deque<Running> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::vector<std::string> variables{"RANK=" + std::to_string(rank),
                                             "WORLD_SIZE=" + std::to_string(hosts.size()), "MASTER_ADDR=" + master,
                                             "MASTER_PORT=29500", "RONDO_SECRET_FILE=" + secret};
    ranks.emplace_back(hosts[rank]->inside({tool("reducer"), "reduce"}), Running::How{.environment = variables});
  }
  for (auto& rank : ranks) {
    const auto ended = rank.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("sums are right\n") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("localhost, of whose addresses one cannot be bound") {
  if (!namespaces_possible()) return;
  const Host host;
  const std::string lines = GENERATE("::1 localhost\n127.0.0.1 localhost\n", "127.0.0.1 localhost\n::1 localhost\n");
  host.set_hosts(lines);
  host.disable_ipv6();
  const SecretFile secret;
  reduce_by_hand({&host, &host}, "localhost", secret.path);
}

TEST_CASE("a host whose own name is a loopback address to itself, as Debian has it") {
  if (!namespaces_possible()) return;
  const Host left, right;
  connect(left, right);
  left.add_address("10.77.0.1/24");
  right.add_address("10.77.0.2/24");
  left.set_hosts("127.0.0.1 localhost\n127.0.1.1 left.example left\n");
  right.set_hosts("127.0.0.1 localhost\n127.0.1.1 right\n10.77.0.1 left\n");
  SECTION("rondorun") { reduce_on(left, right, "left"); }
  SECTION("by hand") {
    const SecretFile secret;
    reduce_by_hand({&left, &right, &left}, "left", secret.path);
  }
}

TEST_CASE("an address that rank 0 cannot serve at is said at once") {
  if (!namespaces_possible()) return;
  const Host host;
  host.set_hosts("::1 localhost\n");
  host.disable_ipv6();
  const SecretFile secret;
  const auto ended = run(host.inside({tool("reducer"), "reduce"}),
                         {.environment = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=29500",
                                          "RONDO_SECRET_FILE=" + secret.path.string()}});
  INFO(ended.out << ended.err);
  CHECK(ended.code != 0);
  CHECK((ended.out + ended.err).find("cannot listen on [::1]:29500") != std::string::npos);
  CHECK(ended.seconds < 10);
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
