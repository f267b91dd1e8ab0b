// SPDX-License-Identifier: Apache-2.0
// The survivors of a killed rank go on, whether a launcher started them or they were started by hand.
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/process/host.hpp"
#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

// Ranks of one host, by hand.
std::deque<Running> start_at(const std::string& port, int count, const Words& how, const Words& environment,
                             const Words& how_of_rank_0 = {}) {
  std::deque<Running> ranks;
  for (int r = 0; r < count; ++r) {
    ranks.emplace_back(
        Words{tool("shrinker")} + (r == 0 && !how_of_rank_0.empty() ? how_of_rank_0 : how),
        Running::How{.environment = Words{"RANK=" + std::to_string(r), "WORLD_SIZE=" + std::to_string(count),
                                          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port} +
                                    environment});
  }
  for (auto& rank : ranks) rank.lines("joined ", 1);
  return ranks;
}

std::deque<Running> start(int count, const Words& how, const Words& environment) {
  static int jobs = 0;
  // The number names the job, and no such port is bound.
  return start_at(std::to_string(20'000 + (::getpid() + 1000 * jobs++) % 20'000), count, how, environment);
}

// A server by itself, which may be killed and started again at its port.
class ServerProgram {
 public:
  ServerProgram() { start(); }
  void start() {
    program_ = std::make_unique<Running>(
        Words{tool("rondo-rendezvous"), "--port", port_, "--secret-file", secret_.path.string()});
    port_ = program_->lines("127.0.0.1:", 1).front();
  }
  void kill() {
    program_->signal(SIGKILL);
    program_->wait();
  }
  const std::string& port() const { return port_; }
  std::string secret() const { return secret_.path.string(); }

 private:
  SecretFile secret_{"server"};
  std::string port_ = "0";
  std::unique_ptr<Running> program_;
};

// How rank 1 is lost, or rank 2, or both.
struct Loss {
  const char* name;
  Words how;
  bool kills, stops;
};
const Loss kKill{"a kill", {}, true, false}, kStop{"a stop, after a deadline", {"deadline"}, false, true},
    kBoth{"a kill beside a stop", {}, true, true};

// From the error to the first sum without who was lost, of the slowest rank.
std::chrono::microseconds time_of_shrink(int count, const Loss& loss) {
  auto ranks = start(count, loss.how, {});
  if (loss.stops) ranks[2].signal(SIGSTOP);
  if (loss.kills) ranks[1].signal(SIGKILL);
  long worst_us = 0;
  for (int r = 0; r < count; ++r) {
    if ((r == 1 && loss.kills) || (r == 2 && loss.stops)) continue;
    auto& rank = ranks[static_cast<std::size_t>(r)];
    worst_us = std::max(worst_us, std::stol(rank.lines("took ", 1).front()));
    const auto ended = rank.wait();
    const std::string of = " of " + std::to_string(count - (loss.kills ? 1 : 0) - (loss.stops ? 1 : 0)) + ", sum ";
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find(of) != std::string::npos);
  }
  return std::chrono::microseconds(worst_us);
}

}  // namespace

TEST_CASE("survivors wait for nobody who is stopped") {
  const Loss loss = GENERATE(kStop, kBoth);
  INFO(loss.name);
  CHECK(time_of_shrink(4, loss) < std::chrono::seconds(3));  // and not the 20 of joining, also where cores are few
}

// The figures: shrink_test "[.long]" prints them.
TEST_CASE("the time that shrinking takes", "[.long]") {
  const Loss loss = GENERATE(kKill, kStop, kBoth);
  const int count = GENERATE(4, 8, 16);
  constexpr std::size_t kTimes = 11;
  std::vector<std::chrono::microseconds> times;
  for (std::size_t i = 0; i < kTimes; ++i) times.push_back(time_of_shrink(count, loss));
  std::sort(times.begin(), times.end());
  const auto ms = [](std::chrono::microseconds us) { return static_cast<double>(us.count()) / 1e3; };
  std::cout << fmt::format("{:26} {:3} ranks: median {:7.1f} ms, worst {:7.1f} ms\n", loss.name, count,
                           ms(times[kTimes / 2]), ms(times.back()))
            << std::flush;
}

TEST_CASE("a rendezvous server dies and comes back while ranks reduce, and they shrink all the same") {
  const int victim = GENERATE(0, 2);
  const bool back_before_the_loss = GENERATE(true, false);
  ServerProgram server;
  auto ranks = start_at(server.port(), 4, {}, {"RONDO_SECRET_FILE=" + server.secret()});
  server.kill();
  if (back_before_the_loss) server.start();
  ranks[static_cast<std::size_t>(victim)].signal(SIGKILL);
  for (int r = 0; r < 4; ++r) {
    // The first that fails: nobody has missed the server until then.
    if (r != victim) CHECK(ranks[static_cast<std::size_t>(r)].lines("lost ", 1).front() == std::to_string(victim));
  }
  if (!back_before_the_loss) server.start();
  for (int r = 0; r < 4; ++r) {
    if (r == victim) continue;
    const auto ended = ranks[static_cast<std::size_t>(r)].wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find(" of 3, sum 3, split ") != std::string::npos);
  }
}

TEST_CASE("a server that comes while survivors wait learns from them who is lost") {
  for (int round = 0; round < 5; ++round) {
    ServerProgram server;
    auto ranks = start_at(server.port(), 4, {}, {"RONDO_SECRET_FILE=" + server.secret()}, {"never"});
    ranks[2].signal(SIGKILL);
    for (const std::size_t r : {0U, 1U, 3U}) CHECK(ranks[r].lines("lost ", 1).front() == "2");
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));  // the moment: they ask, and say who is lost
    server.kill();
    server.start();
    ranks[0].signal(SIGKILL);  // whom they wait for
    for (const std::size_t r : {1U, 3U}) {
      const auto ended = ranks[r].wait();
      INFO(ended.out << ended.err);
      CHECK(ended.code == 0);
      CHECK(ended.out.find(" of 2, sum 2, split ") != std::string::npos);
    }
  }
}

TEST_CASE("survivors shrink to a communicator that works, over any transport") {
  const int victim = GENERATE(0, 1, 3);  // rank 0 serves the rendezvous: then another takes its place
  Words environment{std::string("RONDO_TRANSPORT=") + GENERATE("shm", "tcp")};
  if (GENERATE(false, true)) environment.push_back("RONDO_ENCRYPT=1");
  auto ranks = start(4, {}, environment);
  constexpr int kRanks = 4;
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

void signal_rank(Running& job, int rank, int signal) {
  for (const std::string& line : job.lines("joined ", 4)) {
    std::istringstream words(line);
    int who = -1, pid = -1;
    words >> who >> pid;
    if (who == rank) ::kill(pid, signal);
  }
}

std::string of_killed(int rank) {
  return fmt::format("rank {} \\(pid [0-9]+\\) was killed by signal 9 \\(Killed\\)", rank);
}

bool says(const std::string& err, const std::string& sentence) {
  return std::regex_search(err, std::regex("(rondorun|rondo): " + sentence + "\n"));
}

bool says_end_of(const std::string& err, int rank) {
  return says(err, of_killed(rank) + "[^\n;]*; the other ranks went on without it and finished");
}

// What starts four ranks and watches them: the launcher, with these flags, or spawn().
Words job_of_four(const std::string& way, const Words& flags, const std::string& how) {
  if (way == "spawn") return {tool("shrinker"), how, "4"};
  return rondorun(Words{"--nproc-per-node", "4"} + flags + Words{"--", tool("shrinker"), how});
}

Ended run_killed(const std::string& way, const Words& flags, const std::string& how, int victim) {
  Running job(job_of_four(way, flags, how));
  signal_rank(job, victim, SIGKILL);
  return job.wait();
}

}  // namespace

TEST_CASE("under rondorun and spawn the survivors go on, and its last words say without whom") {
  const std::string way = GENERATE("rondorun", "spawn");
  const int victim = GENERATE(0, 2);
  const auto ended = run_killed(way, {}, "", victim);
  INFO(way << ": " << ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says_end_of(ended.err, victim));
  for (int now = 0; now < 3; ++now)
    CHECK(ended.out.find("shrunk rank " + std::to_string(now) + " of 3, sum 3") != std::string::npos);
}

TEST_CASE("survivors that ask late are told to end, unless the launcher is told to leave them") {
  const std::string way = GENERATE("rondorun", "spawn");
  const auto ended = run_killed(way, {}, "late", 1);
  INFO(way << ": " << ended.out << ended.err);
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(ended.out.find("shrunk") == std::string::npos);
  CHECK(says(ended.err, of_killed(1) + "[^\n]*"));
  if (way == "spawn") return;
  const auto left = run_killed(way, {"--continue-on-failure"}, "late", 1);
  INFO(left.out << left.err);
  CHECK(left.code == 0);
  CHECK(says_end_of(left.err, 1));
}

TEST_CASE("a rank that fails after the others went on ends the job with its own code") {
  const std::string way = GENERATE("rondorun", "spawn");
  const auto ended = run_killed(way, {}, "fails", 1);
  INFO(way << ": " << ended.out << ended.err);
  CHECK(ended.code == 3);
  CHECK(std::regex_search(ended.err, std::regex("rank 3 \\(pid [0-9]+\\) exited with code 3")));
  CHECK(ended.err.find("finished") == std::string::npos);
}

// Nothing else would end them: the job waited for ever for a rank that does nothing.
TEST_CASE("a stopped rank that the others went on without is named and ended with them") {
  const std::string way = GENERATE("rondorun", "spawn");
  const bool beside_a_kill = GENERATE(false, true);
  constexpr int stopped = 2;
  Words flags = {"--max-restarts", "1"};  // nor is it a failure after which all begin again
  Running job(job_of_four(way, flags, "deadline"));
  signal_rank(job, stopped, SIGSTOP);
  if (beside_a_kill) signal_rank(job, 1, SIGKILL);
  const auto ended = job.wait();
  INFO(way << (beside_a_kill ? ", beside a kill: " : ": ") << ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended.err,
             fmt::format("the other ranks went on without rank {}, which is stopped: it is told to end", stopped)));
  CHECK(
      says(ended.err, fmt::format("rank {} \\(pid [0-9]+\\) was killed by signal 15 \\(Terminated\\)[^\n;]*; the other "
                                  "ranks went on without it and finished",
                                  stopped)));
  CHECK(says_end_of(ended.err, 1) == beside_a_kill);
  const std::string of = beside_a_kill ? " of 2, sum 2" : " of 3, sum 3";
  CHECK(ended.out.find("shrunk rank 0" + of) != std::string::npos);
}
