// SPDX-License-Identifier: Apache-2.0
// rondorun --replace: a process in the place of a lost rank, which joins the others while they go on.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace rondo::test;
using nlohmann::json;
using Words = std::vector<std::string>;

bool says(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

Words job(Words flags, const Words& steps) {
  flags.insert(flags.end(), {"--", tool("grower"), "env", "-"});
  flags.insert(flags.end(), steps.begin(), steps.end());
  return rondorun(flags);
}

// The process that has joined as that rank of four.
pid_t pid_of(Running& running, int rank, std::size_t times = 1) {
  return std::stoi(running.lines(fmt::format("joined rank {} of 4 as ", rank), times).back());
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a process takes the place of a killed rank and joins the others, whose processes go on") {
  Running running(job({"-n", "4", "--replace", "2"}, {"lose", "grow=4", "all", "joiner", "all"}));
  running.lines("joined ", 4);
  const pid_t lost = pid_of(running, 1);
  ::kill(lost, SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  for (const auto& [launched, rank] : {std::pair(0, 0), {2, 1}, {3, 2}, {1, 3}}) {
    CHECK(says(ended.out, fmt::format("[{}] rank {} of 4 on 1 node(s): sum 4 4, state 77\n", launched, rank)));
    CHECK(says(ended.out, fmt::format("[{}] done\n", launched)));
    CHECK(count_of(ended.out, fmt::format("[{}] starting ", launched)) == (launched == 1 ? 2 : 1));
  }
  CHECK(says(ended.err, fmt::format("rondorun: rank 1 (pid {}) was killed by signal 9 (Killed)\n", lost)));
  CHECK(says(ended.err, "rondorun: rank 1 is replaced by another process (pid "));
  CHECK(says(ended.err, "), which waits to join the others: replacement 1 of 2\n"));
  CHECK(says(ended.err, "; the other ranks went on without it and finished\n"));
}

TEST_CASE("who has replaced a rank is replaced too when it is lost, and no more often than allowed") {
  const bool allowed = GENERATE(true, false);
  Running running(
      job({"-n", "4", "--replace", allowed ? "2" : "1"}, {"lose", "grow=4", "lose", allowed ? "grow=4" : "try=4", "all",
                                                          "joiner", "lose", "grow=4", "all", "joiner", "all"}));
  running.lines("joined ", 4);
  ::kill(pid_of(running, 2), SIGKILL);
  const pid_t second = pid_of(running, 3, 2);  // the first was there from the start
  ::kill(second, SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended.err, fmt::format("rondorun: rank 2 (pid {}) was killed by signal 9 (Killed)\n", second)));
  CHECK(says(ended.err, "replacement 2 of 2") == allowed);
  CHECK(says(ended.out, fmt::format("[2] rank 3 of 4 on 1 node(s): sum 4 4, state 77\n")) == allowed);
  CHECK(says(ended.out, fmt::format("[0] rank 0 of {0} on 1 node(s): sum {0} {0}, state 77\n", allowed ? 4 : 3)));
  CHECK(says(ended.out, "[0] refused timeout") == !allowed);
}

TEST_CASE("two ranks that are lost are replaced both, with what their places have") {
  Running running(rondorun({"-n",        "4",
                            "--replace", "2",
                            "--",        "sh",
                            "-c",        "echo place $RANK $LOCAL_RANK $RONDO_CORES; exec \"$@\"",
                            "sh",        tool("grower"),
                            "env",       "-",
                            "lose",      "stand=4",
                            "all",       "joiner",
                            "stand=4",   "all",
                            "joiner",    "stand=4",
                            "all"}));
  running.lines("joined ", 4);
  for (const int rank : {0, 3}) ::kill(pid_of(running, rank), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count_of(ended.out, ": sum 4 4, state 77\n") == 4);
  for (const int rank : {0, 3}) CHECK(count_of(ended.out, fmt::format("[{0}] place {0} {0} ", rank)) == 2);
}

TEST_CASE("a replacement that fails before it has joined costs nobody anything but one of them") {
  Running running(rondorun({"-n", "4", "--replace", "2", "--", "sh", "-c",
                            "case $RONDO_JOINS_AS in *.1) exit 7;; esac; exec \"$@\"", "sh", tool("grower"), "env", "-",
                            "lose", "grow=4", "all", "joiner", "joiner", "all"}));
  running.lines("joined ", 4);
  ::kill(pid_of(running, 3), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended.err, ") exited with code 7\n"));
  CHECK(says(ended.err, "replacement 2 of 2"));
  CHECK(count_of(ended.out, ": sum 4 4, state 77\n") == 4);
}

TEST_CASE("a replacement that nobody lets join is ended when the others have") {
  const TemporaryFolder folder;
  const std::string started = folder.file("started");
  Running running(rondorun({"-n", "4", "--replace", "1", "--", "sh", "-c",
                            "[ -n \"$RONDO_JOINS_AS\" ] && touch " + started + "; exec \"$@\"", "sh", tool("grower"),
                            "env", "-", "lose", "until=" + started, "all", "joiner", "all"}));
  running.lines("joined ", 4);
  ::kill(pid_of(running, 1), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count_of(ended.out, ": sum 3 3, state 77\n") == 3);
  CHECK(says(ended.err, "the other ranks have ended, and none has let the replacement of rank 1 join: told to end\n"));
  CHECK(ended.seconds < 20);  // its join_timeout
}

TEST_CASE("ranks that do not go on in memory start again instead, and those that do are replaced after that, too") {
  Running running(rondorun({"-n", "4", "--replace", "1", "--max-restarts", "1", "--", "sh", "-c",
                            "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && { [ $RANK = 1 ] && exit 3; exec sleep 60; }; "
                            "exec \"$@\"",
                            "sh", tool("grower"), "env", "-", "lose", "grow=4", "all", "joiner", "all"}));
  running.lines("joined ", 4);
  ::kill(pid_of(running, 2), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended.err, "rondorun: starting again: restart 1 of 1\n"));
  CHECK(count_of(ended.err, " is replaced by ") == 1);
  CHECK(count_of(ended.out, ": sum 4 4, state 77\n") == 4);
}

TEST_CASE("rondo top shows who has replaced a rank, in the communicator that it has joined") {
  Running running(job({"-n", "4", "--replace", "1"}, {"lose", "grow=4", "lose", "joiner", "lose"}));
  running.lines("joined ", 4);
  ::kill(pid_of(running, 1), SIGKILL);
  const pid_t joined = pid_of(running, 3, 2);
  const auto top = [&](const Words& flags) {
    Words command{tool("rondo"), "top"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back(std::to_string(running.pid()));
    return run(command).out;
  };
  json ranks;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do ranks = json::parse(top({"--json"}))["ranks"];
  while (!(ranks.size() == 4 && ranks[1]["generation"] == 2 && ranks[0]["generation"] == 2) &&
         std::chrono::steady_clock::now() < deadline);
  CAPTURE(ranks.dump(1));
  REQUIRE(ranks.size() == 4);
  CHECK(ranks[1]["rank"] == 1);
  CHECK(ranks[1]["pid"] == joined);
  CHECK(ranks[1]["replaces"] == true);
  CHECK(ranks[1]["generation"] == 2);
  CHECK(ranks[1]["communicator"] == ranks[0]["communicator"]);
  CHECK_FALSE(ranks[0].contains("replaces"));
  CHECK(says(top({}), fmt::format("   +1 {:>8} ", joined)));
  running.signal(SIGTERM);
  CHECK(running.wait().code == 128 + SIGTERM);
}

TEST_CASE("--replace is refused where it cannot be had") {
  for (const auto& [flags, sentence] : std::vector<std::pair<Words, std::string>>{
           {{"--nnodes", "2", "--master-addr", "a", "--no-secret"}, "--replace 1 is for one node: on several, "},
           {{"--nnodes", "1:2", "--master-addr", "a", "--no-secret"}, "--replace 1 is for one node: on several, "},
           {{"--hosts", "a,b"}, "--replace 1 is for one node: on several, "},
           {{"--replace", "x"}, "--replace must be a whole number from 0 to 1000000, not 'x'"}}) {
    Words words{"--replace", "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("true");
    const Ended ended = run(rondorun(words));
    CAPTURE(ended.err);
    CHECK(ended.code == 2);
    CHECK(says(ended.err, sentence));
  }
}
