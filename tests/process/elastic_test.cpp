// SPDX-License-Identifier: Apache-2.0
// Jobs of several nodes that start again: after failures, and with other nodes.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/process/nodes_job.hpp"
#include "tests/process/resumed.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

using Launchers = std::vector<std::unique_ptr<Running>>;

Launchers start_nodes(const NodesJob& job, int nodes, const std::vector<std::string>& flags,
                      const std::vector<std::string>& command) {
  Launchers all;
  for (int node = 0; node < nodes; ++node) {
    auto own = flags;
    own.insert(own.end(), {"--node-rank", std::to_string(node)});
    all.push_back(job.start(own, command));
  }
  return all;
}

bool says(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("ranks of all nodes are started again as often as allowed, and count the same") {
  const NodesJob job("3");
  const auto launchers = start_nodes(
      job, 3, {"--nproc-per-node", "2", "--max-restarts", "3"},
      {"sh", "-c",
       "trap 'sleep 0.2; exit 1' TERM; echo run $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
       "[ $TORCHELASTIC_RESTART_COUNT-$RANK = 0-3 ] && exit 4; [ $TORCHELASTIC_RESTART_COUNT-$RANK = 1-0 ] && kill -9 "
       "$$; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; sleep 60 & wait"});
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    for (const char* run : {"run 0 of 3\n", "run 1 of 3\n", "run 2 of 3\n"}) {
      const auto first = ended.out.find(run);
      REQUIRE(first != std::string::npos);
      CHECK(ended.out.find(run, first + 1) != std::string::npos);
    }
    CHECK(says(ended.err, "rondorun: rank 3 (pid "));
    CHECK(says(ended.err, "rondorun: starting again: restart 1 of 3\n"));
    CHECK(says(ended.err, "rondorun: rank 0 (pid "));
    CHECK(says(ended.err, "rondorun: starting again: restart 2 of 3\n"));
    CHECK_FALSE(says(ended.err, "restart 3 of 3"));
    CHECK(ended.seconds < 20);
  }
}

TEST_CASE("when no restart is left, the verdict is the last start's first failure on every node") {
  const NodesJob job("2");
  const auto launchers = start_nodes(
      job, 2, {"--max-restarts", "1"},
      {"sh", "-c",
       "[ $RANK = $TORCHELASTIC_RESTART_COUNT ] && exit $((5 + TORCHELASTIC_RESTART_COUNT)); exec sleep 60"});
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.code == 6);
    CHECK(says(ended.err, "exited with code 5 on host "));
    CHECK(says(ended.err, "restart 1 of 1\nrondorun: rank 1 (pid "));
    CHECK(says(ended.err, "exited with code 6 on host "));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 3);
  }
}

TEST_CASE("failures of all ranks at once, and of those that are told to end, are one") {
  const NodesJob job("2");
  const auto launchers = start_nodes(
      job, 2, {"--nproc-per-node", "2", "--max-restarts", "5", "--grace-period", "0.6"},
      {"sh", "-c",
       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec sleep 1.5; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; "
       "trap '' TERM; [ $LOCAL_RANK = 0 ] && exit 4; sleep 60"});
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(says(ended.err, "restart 1 of 5"));
    CHECK_FALSE(says(ended.err, "restart 2 of 5"));
  }
}

TEST_CASE("what a signal ended, and what cannot be started, is not started again on several nodes") {
  const NodesJob job("2");
  SECTION("SIGINT to one launcher") {
    const auto launchers = start_nodes(job, 2, {"--max-restarts", "5"}, {"sh", "-c", "echo ready; exec sleep 60"});
    for (const auto& launcher : launchers) launcher->lines("ready", 1);
    launchers[1]->signal(SIGINT);
    for (const auto& launcher : launchers) {
      const Ended ended = launcher->wait();
      INFO(ended.err);
      CHECK(ended.code == 128 + SIGINT);
      CHECK_FALSE(says(ended.err, "starting again"));
    }
  }
  SECTION("no such program") {
    const auto launchers = start_nodes(job, 2, {"--max-restarts", "5"}, {"/nonexistent"});
    for (const auto& launcher : launchers) {
      const Ended ended = launcher->wait();
      CHECK(ended.code == 127);
      CHECK_FALSE(says(ended.err, "starting again"));
    }
  }
}

TEST_CASE("launchers that do not restart as often are no job") {
  const NodesJob job("2");
  const auto first = job.start({"--node-rank", "0", "--max-restarts", "2"}, {"true"});
  const Ended stranger = job.start({"--node-rank", "1"}, {"true"})->wait();
  CAPTURE(stranger.err);
  CHECK(stranger.code == 1);
  CHECK(says(stranger.err, "rondorun: --max-restarts differs: 2 at node 0, on "));
  CHECK(job.start({"--node-rank", "1", "--max-restarts", "2"}, {"true"})->wait().code == 0);
  CHECK(first->wait().code == 0);
}

TEST_CASE("a launcher of a fixed world that dies while the ranks are started again ends all nodes by name") {
  const NodesJob job("2");
  const auto launchers = start_nodes(
      job, 2, {"--max-restarts", "5", "--grace-period", "20"},
      {"sh", "-c", "trap 'echo told' TERM; echo ready; [ $RANK = 0 ] && exit 4; while :; do sleep 0.1; done"});
  launchers[1]->lines("told", 1);
  launchers[1]->signal(SIGKILL);
  const Ended ended = launchers[0]->wait();
  INFO(ended.err);
  CHECK(ended.code == 1);
  CHECK(says(ended.err, "rondorun: the launcher of node 1 on host "));
  CHECK(ended.seconds < 20);
}

TEST_CASE("whom the survivors of one start went on without is needed at the next one") {
  const NodesJob job("2");
  const auto launchers = start_nodes(job, 2, {"--nproc-per-node", "2", "--max-restarts", "1"},
                                     {"sh", "-c",
                                      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec " + tool("shrinker") +
                                          " fails; "
                                          "[ $RANK = 1 ] && exit 9; exec sleep 60"});
  launchers[1]->lines("joined ", 2);
  for (const auto& line : launchers[0]->lines("joined ", 2))
    if (line.starts_with("1 ")) ::kill(std::stoi(line.substr(2)), SIGKILL);
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.code == 9);
    CHECK(says(ended.err, "starting again: restart 1 of 1\n"));
    CHECK(ended.seconds < 30);
  }
}

TEST_CASE("a training whose ranks are killed on two nodes ends as if nothing had happened") {
  constexpr int kSteps = 30;
  const auto expected = undisturbed_result(kSteps);
  const TemporaryFolder folder;
  const NodesJob job("2");
  const auto launchers =
      start_nodes(job, 2, {"--nproc-per-node", "2", "--max-restarts", "2"}, training(folder, kSteps, 20));
  const auto victim = [&](const std::string& start) {
    for (const auto& line : launchers[1]->lines("start ", start == "0" ? 2 : 4))
      if (line.starts_with(start + " rank 2 ")) return std::stoi(line.substr(line.rfind(' ')));
    return -1;
  };
  for (const std::string start : {"0", "1"}) {
    launchers[0]->lines("step 5", 1);
    const pid_t pid = victim(start);
    REQUIRE(pid > 0);
    ::kill(pid, SIGKILL);
  }
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(says(ended.out, "result " + expected + "\n"));
    CHECK(says(ended.err, "restart 2 of 2"));
    CHECK(says(ended.out, "start 2 rank "));
    CHECK_FALSE(says(ended.out, "start 2 rank 0 of 4 on node 0 of 2 at 0 "));
  }
}

namespace {

void check_result(Running& node, const std::string& expected) {
  const Ended ended = node.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended.out, "result " + expected + "\n"));
}

const std::vector<std::string> kQuick{"--rdzv-conf", "join_timeout=30,last_call_timeout=1"};
constexpr int kLong = 60, kPause = 50;  // steps, and milliseconds of each: time for what happens meanwhile

}  // namespace

TEST_CASE("a world of MIN to MAX nodes goes on with fewer when a launcher is killed, and with more when one comes") {
  const auto expected = undisturbed_result(kLong);
  const TemporaryFolder folder;
  const NodesJob job("2:3");
  const auto program = training(folder, kLong, kPause);
  auto launchers = start_nodes(job, 3, kQuick, program);
  for (int node = 0; node < 3; ++node)
    await_start(*launchers[static_cast<std::size_t>(node)],
                "0 rank " + std::to_string(node) + " of 3 on node " + std::to_string(node) + " of 3 at 0 ");
  launchers[0]->lines("step 3", 1);
  const auto lost_pid = await_start(*launchers[1], "0 rank 1 ");
  const Watched lost({std::to_string(lost_pid)});
  launchers[1]->signal(SIGKILL);
  const auto killed_at = std::chrono::steady_clock::now();
  await_start(*launchers[2], "0 rank 1 of 2 on node 1 of 2 at ");
  CHECK(std::chrono::steady_clock::now() - killed_at < 5s);
  CHECK(lost.all_gone_within(1s));
  const auto newcomer = job.start(kQuick, program);
  await_start(*newcomer, "0 rank 2 of 3 on node 2 of 3 at ");
  await_start(*launchers[2], "0 rank 1 of 3 on node 1 of 3 at ");
  launchers.erase(launchers.begin() + 1);
  for (const auto& launcher : launchers) {
    const Ended ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(says(ended.out, "result " + expected + "\n"));
    CHECK(says(ended.err, "rondorun: the launcher of node 1 on host "));
    CHECK(says(ended.err, "rondorun: another node has come\n"));
    CHECK_FALSE(says(ended.err, "restart 1"));
  }
  check_result(*newcomer, expected);
}

TEST_CASE("of launchers that are lost at the same time none is waited for") {
  const NodesJob job("1:4");
  const auto launchers =  // 30 s for the last call
      start_nodes(job, 4, {}, {"sh", "-c", "echo world of $WORLD_SIZE; exec sleep 60"});
  for (const auto& launcher : launchers) launcher->lines("world of 4", 1);
  for (const std::size_t node : {1U, 2U}) launchers[node]->signal(SIGKILL);
  const auto killed_at = std::chrono::steady_clock::now();
  for (const std::size_t node : {0U, 3U}) launchers[node]->lines("world of 2", 1);
  CHECK(std::chrono::steady_clock::now() - killed_at < 20s);
  launchers[0]->signal(SIGTERM);
  const Ended ended = launchers[0]->wait();
  INFO(ended.err);
  for (const char* node : {"1", "2"})
    CHECK(says(ended.err, "rondorun: the launcher of node " + std::string(node) + " on host "));
}

TEST_CASE("a launcher of a world of MIN to MAX that a signal ends leaves it, and the others go on at once") {
  const auto expected = undisturbed_result(kLong);
  const TemporaryFolder folder;
  const NodesJob job("1:3");
  const auto program = training(folder, kLong, kPause);
  auto launchers = start_nodes(job, 3, {"--nproc-per-node", "2"}, program);  // 30 s for the last call
  await_start(*launchers[0], "0 rank 0 of 6 ");
  launchers[0]->lines("step 3", 1);
  launchers[1]->signal(SIGTERM);
  const auto left_at = std::chrono::steady_clock::now();
  await_start(*launchers[2], "0 rank 2 of 4 on node 1 of 2 at ");
  CHECK(std::chrono::steady_clock::now() - left_at < 10s);
  const Ended left = launchers[1]->wait();
  INFO(left.err);
  CHECK(left.code == 128 + SIGTERM);
  CHECK(says(left.err, " leaves: stopped by signal 15 (Terminated)\n"));
  for (const std::size_t node : {0U, 2U}) check_result(*launchers[node], expected);
}

TEST_CASE("a world of MIN to MAX starts without those who do not come to the last call") {
  const NodesJob job("2:4");
  const auto launchers = start_nodes(job, 2, kQuick, {"sh", "-c", "echo $RANK of $WORLD_SIZE on $GROUP_WORLD_SIZE"});
  for (std::size_t node = 0; node < 2; ++node) {
    const Ended ended = launchers[node]->wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(says(ended.out, std::to_string(node) + " of 2 on 2\n"));
    CHECK(ended.seconds > 0.9);
  }
}

TEST_CASE("fewer than MIN nodes end with a sentence that says so: at the first start, and after a loss") {
  const NodesJob job("2:3");
  const std::vector<std::string> flags{"--rdzv-conf", "join_timeout=2,last_call_timeout=1"};
  SECTION("first start") {
    const Ended ended = job.start(flags, {"true"})->wait();
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(says(ended.err, "rondorun: 1 of at least 2 nodes came within 2 s, which are too few to start\n"));
  }
  SECTION("after a loss") {
    const auto launchers = start_nodes(job, 2, flags, {"sh", "-c", "echo ready; exec sleep 60"});
    for (const auto& launcher : launchers) launcher->lines("ready", 1);
    launchers[1]->signal(SIGKILL);
    const Ended ended = launchers[0]->wait();
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(says(ended.err, "rondorun: the launcher of node 1 on host "));
    CHECK(says(ended.err, "rondorun: 1 of at least 2 nodes came within 2 s, which are too few to start\n"));
  }
}

TEST_CASE("the death of the launcher that serves the rendezvous ends a world of MIN to MAX by name") {
  const NodesJob job("1:3");
  const auto launchers = start_nodes(job, 3, kQuick, {"sh", "-c", "echo pid $$; exec sleep 60"});
  const Watched ranks(
      {launchers[0]->lines("pid ", 1)[0], launchers[1]->lines("pid ", 1)[0], launchers[2]->lines("pid ", 1)[0]});
  launchers[0]->signal(SIGKILL);
  for (const std::size_t node : {1U, 2U}) {
    const Ended ended = launchers[node]->wait();
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(says(ended.err, "rondorun: the launcher of node 0 on host "));
  }
  CHECK(ranks.all_gone_within(1s));
}

TEST_CASE("failures in a world of MIN to MAX count as restarts, and a node too many waits until it is needed") {
  const NodesJob job("1:2");
  auto flags = kQuick;
  flags.insert(flags.end(), {"--max-restarts", "1"});
  const std::vector<std::string> command{"sh", "-c",
                                         "trap 'exit 3' USR1; echo ready $TORCHELASTIC_RESTART_COUNT $GROUP_RANK; "
                                         "while :; do sleep 0.1; done"};
  auto launchers = start_nodes(job, 2, flags, command);
  for (const auto& launcher : launchers) launcher->lines("ready 0 ", 1);
  const auto spare = job.start(flags, command);
  launchers[1]->signal(SIGUSR1);
  for (const auto& launcher : launchers) launcher->lines("ready 1 ", 1);
  launchers[0]->signal(SIGUSR1);
  for (const auto& launcher : launchers) CHECK(launcher->wait().code == 3);
  const Ended unneeded = spare->wait();
  INFO(unneeded.err);
  CHECK(unneeded.code == 1);
  CHECK(unneeded.out.empty());
  CHECK(says(unneeded.err, "the job has failed without this node"));
}
