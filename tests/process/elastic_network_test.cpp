// SPDX-License-Identifier: Apache-2.0
// Worlds of MIN to MAX hosts, each with a network of its own, of which some are cut off, die and come.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/process/network.hpp"
#include "tests/process/resumed.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

constexpr int kSteps = 300, kPause = 50;  // milliseconds of each: 15 s undisturbed

class ElasticJob {
 public:
  ElasticJob(const Network& network, std::string nodes) : network_(network), nodes_(std::move(nodes)) {}
  Running& start(std::size_t host, int last_call_s) {
    const Words command =
        rondorun({"--nnodes", nodes_, "--node-rank", std::to_string(host), "--master-addr", Network::address(0),
                  "--secret-file", secret_.path.string(), "--rdzv-conf",
                  "join_timeout=60,last_call_timeout=" + std::to_string(last_call_s), "--failure-dir", "none"}) +
        training(folder_, kSteps, kPause);
    launchers_.push_back(std::make_unique<Running>(network_.host(host).inside(command), Running::How{.limit = 120s}));
    return *launchers_.back();
  }

 private:
  const Network& network_;
  std::string nodes_;
  SecretFile secret_{"elastic"};
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Running>> launchers_;
};

void check_result(Running& node, const std::string& expected) {
  const Ended ended = node.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("result " + expected + "\n") != std::string::npos);
}

void cut(Network& network, std::size_t host, std::chrono::milliseconds time) {
  network.cut(host, true);
  std::this_thread::sleep_for(time);
  network.cut(host, false);
}

}  // namespace

TEST_CASE("a host that is cut for less than the patience costs nothing; for 5 s, the others go on until it is back") {
  if (!networks_possible()) return;
  const std::string expected = undisturbed_result(kSteps);
  Network network(3, 5);
  ElasticJob job(network, "2:3");
  Running *first = &job.start(0, 1), *second = &job.start(1, 1), *third = &job.start(2, 1);
  await_start(*third, "0 rank 2 of 3 on node 2 of 3 at 0 ");
  first->lines("step 5", 1);
  cut(network, 2, 1s);
  CHECK(first->lines("start ", 1).size() == 1);
  cut(network, 2, 5s);
  await_start(*third, "0 rank 2 of 3 on node 2 of 3 at ");
  await_start(*second, "0 rank 1 of 2 on node 1 of 2 at ");
  for (Running* node : {first, second}) {
    const auto starts = node->lines("start ", 3);
    CHECK(starts.size() == 3);
    CHECK(starts[1].find(" of 2 on node ") != std::string::npos);
    CHECK(starts[2].find(" of 3 on node ") != std::string::npos);
  }
  for (Running* node : {first, second, third}) check_result(*node, expected);
}

TEST_CASE("a host whose launcher is killed is gone on without, and one that comes is taken in") {
  if (!networks_possible()) return;
  const std::string expected = undisturbed_result(kSteps);
  Network network(4, 6);
  ElasticJob job(network, "2:3");
  Running *first = &job.start(0, 30), *second = &job.start(1, 30), *third = &job.start(2, 30);
  first->lines("step 5", 1);
  second->signal(SIGKILL);
  const auto killed_at = std::chrono::steady_clock::now();
  await_start(*third, "0 rank 1 of 2 on node 1 of 2 at ");
  CHECK(std::chrono::steady_clock::now() - killed_at < 5s);
  Running* fourth = &job.start(3, 30);
  await_start(*fourth, "0 rank 2 of 3 on node 2 of 3 at ");
  for (Running* node : {first, third, fourth}) check_result(*node, expected);
}

TEST_CASE("a host that does not come back is gone on without") {
  if (!networks_possible()) return;
  const std::string expected = undisturbed_result(kSteps);
  Network network(3, 8);
  ElasticJob job(network, "2:3");
  Running *first = &job.start(0, 2), *second = &job.start(1, 2), *third = &job.start(2, 2);
  await_start(*third, "0 rank 2 of 3 ");
  first->lines("step 5", 1);
  network.cut(2, true);
  await_start(*second, "0 rank 1 of 2 on node 1 of 2 at ");
  for (Running* node : {first, second}) check_result(*node, expected);
  const Ended alone = third->wait();
  INFO(alone.err);
  CHECK(alone.code == 1);
  CHECK(alone.err.find(" is cut off from all other hosts") != std::string::npos);
}
