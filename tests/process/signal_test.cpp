// SPDX-License-Identifier: Apache-2.0
// Signals to the launcher reach the ranks.
#include <sys/wait.h>

#include <fstream>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

// Says "ready", and "got NAME" on a signal; ends with 0 on those in `ends`.
std::vector<std::string> listener(const std::string& ends) {
  return rondorun({"--nproc-per-node", "2", "--", "sh", "-c",
                   "for s in INT TERM QUIT HUP USR1 USR2; do trap \"echo got $s; case ' " + ends +
                       " ' in *' $s '*) exit 0;; esac\" $s; done; echo ready; while :; do sleep 0.05; done"});
}

char state_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  return line.empty() ? 'X' : line[line.rfind(')') + 2];
}

}  // namespace

TEST_CASE("a signal is passed on to every rank; ranks that end well then make the job end well") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGQUIT, SIGHUP);
  const std::string name = signal == SIGINT ? "INT" : signal == SIGTERM ? "TERM" : signal == SIGQUIT ? "QUIT" : "HUP";
  Running job(listener(name));
  job.lines("ready", 2);
  job.signal(signal);
  CHECK(job.lines("got " + name, 2).size() == 2);
  CHECK(job.wait().code == 0);
}

TEST_CASE("a signal that ends the ranks is the launcher's end, in one sentence") {
  Running job(rondorun({"--nproc-per-node", "3", "--", "sh", "-c", "echo ready; exec sleep 60"}));
  job.lines("ready", 3);
  job.signal(SIGTERM);
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGTERM);
  CHECK(ended.err == "rondorun: stopped by signal 15 (Terminated)\n");
  CHECK(ended.seconds < 3);
}

TEST_CASE("SIGUSR1 and SIGUSR2 are passed on and end nothing") {
  Running job(listener("TERM"));
  job.lines("ready", 2);
  job.signal(SIGUSR1);
  job.lines("got USR1", 2);
  job.signal(SIGUSR2);
  job.lines("got USR2", 2);
  job.signal(SIGTERM);
  CHECK(job.wait().code == 0);
}

TEST_CASE("the second SIGINT kills") {
  Running job(listener("nothing"));
  job.lines("ready", 2);
  job.signal(SIGINT);
  job.lines("got INT", 2);
  job.signal(SIGINT);
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGINT);
  CHECK(ended.seconds < 4);
}

TEST_CASE("under nohup a hang-up ends nothing") {
  auto command = listener("TERM");
  command.insert(command.begin(), "nohup");
  command.insert(command.begin() + 2, {"--grace-period", "0"});  // what is to end is killed at once
  Running job(command);
  job.lines("ready", 2);
  job.signal(SIGHUP);
  job.signal(SIGUSR1);  // comes after it, so its echo proves that the hang-up did nothing
  CHECK(job.lines("got USR1", 2).size() == 2);
}

TEST_CASE("a stopped job stops its ranks, and goes on when it is continued") {
  // No child: a shell whose child is stopped between vfork and exec waits for it in state D.
  Running job(rondorun({"--", "sh", "-c", "trap 'echo go on' USR1; echo pid $$; while :; do :; done"}));
  const auto rank = job.lines("pid ", 1).front();
  job.signal(SIGTSTP);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(job.pid()), &info, WSTOPPED) == 0);
  CHECK(info.si_code == CLD_STOPPED);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (state_of(rank) != 'T' && std::chrono::steady_clock::now() < deadline) continue;
  CHECK(state_of(rank) == 'T');
  job.signal(SIGCONT);
  job.signal(SIGUSR1);
  CHECK(job.lines("go on", 1).size() == 1);
}

TEST_CASE("under timeout the ranks get its signal") {
  auto command = rondorun({"--nproc-per-node", "2", "--", "sh", "-c", "exec sleep 60"});
  command.insert(command.begin(), {"timeout", "0.3"});
  const auto ended = run(command);
  CHECK(ended.code == 124);
  CHECK(ended.seconds < 3);
}
