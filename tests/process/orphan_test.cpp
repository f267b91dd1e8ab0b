// SPDX-License-Identifier: Apache-2.0
// Nothing outlives a job, whoever of it is killed.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <fstream>
#include <sstream>

#include "runtime/process/descent.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

constexpr std::size_t kPidsOfRank = 3;  // itself, a helper, a daemon

std::vector<std::string> nasty(const std::string& ranks) {
  return rondorun({"--nproc-per-node", ranks, "--grace-period", "0.3", tool("nasty")});
}

pid_t only_child_of(pid_t pid) {
  const auto number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  pid_t child = 0;
  file >> child;
  REQUIRE(child > 0);
  return child;
}

// Launcher, witness, supervisor.
std::array<pid_t, 3> own_processes(pid_t launcher) {
  const pid_t witness = only_child_of(launcher);
  return {launcher, witness, only_child_of(witness)};
}

// By its name, as pkill sees it, or by a word of its command line, as pkill -f does. What a rank runs is none.
bool is_called_rondorun(pid_t pid) {
  const auto holds = [&](const char* file) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/" + file);
    std::ostringstream text;
    text << in.rdbuf();  // nothing, where it ends meanwhile
    return text.str().find("rondorun") != std::string::npos;
  };
  return holds("comm") || holds("cmdline");
}

// A job of which every process inherits the writing end of a pipe: its reader hears the last of them end.
struct HeardJob {
  template <class Command>
  explicit HeardJob(const Command& command) : HeardJob(make_pipe(), command) {}
  bool ends_within(std::chrono::milliseconds limit) const {
    pollfd waiting{reader.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&waiting, 1, static_cast<int>(limit.count())) == 1 && ::read(reader.get(), &byte, 1) == 0;
  }
  rondo::Fd reader;
  Running job;

 private:
  static std::array<rondo::Fd, 2> make_pipe() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    return {rondo::Fd(ends[0]), rondo::Fd(ends[1])};
  }
  template <class Command>
  HeardJob(std::array<rondo::Fd, 2> ends, const Command& command) : reader(std::move(ends[0])), job(command) {}
};

// How far the job has come by then is what the test varies.
void let_run(int microseconds) {
  const timespec delay{.tv_sec = 0, .tv_nsec = microseconds * 1000L};
  ::nanosleep(&delay, nullptr);
}

}  // namespace

TEST_CASE("SIGKILL of the launcher leaves nothing, and it is said") {
  for (int round = 0; round < 5; ++round) {
    Running job(nasty("3"));
    const Watched all(job.lines("pid ", 3 * kPidsOfRank));
    job.signal(SIGKILL);
    CHECK(all.all_gone_within(1s));
    const std::string sentence = "the launcher of the job (pid " + std::to_string(job.pid()) + ") is gone";
    CHECK(job.wait().err.find(sentence) != std::string::npos);
  }
}

TEST_CASE("SIGKILL of the launcher's whole process group leaves nothing") {
  Running job(nasty("2"), {.own_group = true});
  const Watched all(job.lines("pid ", 2 * kPidsOfRank));
  ::kill(-job.pid(), SIGKILL);
  CHECK(all.all_gone_within(1s));
}

TEST_CASE("SIGKILL of the witness or of the supervisor leaves nothing, and it is said which") {
  const auto [who, name] = GENERATE(std::pair(1U, "witness"), std::pair(2U, "supervisor"));
  Running job(nasty("2"));
  const Watched all(job.lines("pid ", 2 * kPidsOfRank));
  ::kill(own_processes(job.pid())[who], SIGKILL);
  CHECK(all.all_gone_within(1s));
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(ended.err.find(name) != std::string::npos);
}

TEST_CASE("SIGKILL of any two of launcher, witness and supervisor leaves nothing, in any order") {
  const auto [first, second] = GENERATE(std::pair(0U, 1U), std::pair(0U, 2U), std::pair(1U, 0U), std::pair(1U, 2U),
                                        std::pair(2U, 0U), std::pair(2U, 1U));
  const bool at_once = GENERATE(true, false);  // or each has the time to do something about it
  CAPTURE(first, second, at_once);
  for (int round = 0; round < 3; ++round) {
    Running job(nasty("2"));
    const Watched all(job.lines("pid ", 2 * kPidsOfRank));
    const auto processes = own_processes(job.pid());
    if (at_once) {
      for (const pid_t pid : {processes[first], processes[second]}) ::kill(pid, SIGSTOP);
    }
    for (const pid_t pid : {processes[first], processes[second]}) ::kill(pid, SIGKILL);
    CHECK(all.all_gone_within(2s));
  }
}

TEST_CASE("a launcher that is told of signals while its witness ends leaves nothing") {
  for (int round = 0; round < 10; ++round) {
    Running job(nasty("2"));
    const Watched all(job.lines("pid ", 2 * kPidsOfRank));
    const auto processes = own_processes(job.pid());
    const Watched witness({std::to_string(processes[1])});
    for (const std::size_t who : {2U, 1U}) ::kill(processes[who], SIGKILL);
    while (!witness.all_gone_within(0s)) job.signal(SIGUSR1);  // it passes them on to who is just going
    CHECK(all.all_gone_within(5s));
    job.wait();
  }
}

TEST_CASE("a launcher whose words nobody hears leaves nothing") {
  Running job(nasty("2"), {.one_stream = true});
  const Watched all(job.lines("pid ", 2 * kPidsOfRank));
  const auto processes = own_processes(job.pid());
  job.signal(SIGSTOP);  // or it would say now what it says when nobody hears it
  for (const std::size_t who : {2U, 1U}) ::kill(processes[who], SIGKILL);
  job.close_output();
  job.signal(SIGCONT);
  CHECK(all.all_gone_within(5s));
  CHECK(job.wait().code == 128 + SIGKILL);
}

TEST_CASE("SIGKILL of all that are called as the launcher leaves nothing, whenever it comes") {
  for (int delay_us = 0; delay_us < 60'000; delay_us += 2'000) {
    HeardJob heard(nasty("2"));
    Running& job = heard.job;
    let_run(delay_us);
    job.signal(SIGSTOP);  // it is below us, and so is what it started
    for (const pid_t pid : rondo::process::descendants()) {
      if (pid == job.pid() || is_called_rondorun(pid)) ::kill(pid, SIGKILL);
    }
    CHECK(heard.ends_within(3s));
  }
}

TEST_CASE("SIGKILL of launcher, witness and supervisor at once leaves no rank") {
  Running job(rondorun({"--nproc-per-node", "2", "--", "sh", "-c", "trap '' TERM; echo pid $$; exec sleep 600"}));
  const Watched ranks(job.lines("pid ", 2));
  const auto processes = own_processes(job.pid());
  for (const pid_t pid : processes) ::kill(pid, SIGSTOP);
  for (const pid_t pid : processes) ::kill(pid, SIGKILL);
  CHECK(ranks.all_gone_within(1s));
}

TEST_CASE("SIGKILL of the launcher before the ranks have started leaves nothing") {
  for (int delay_us = 0; delay_us < 20'000; delay_us += 1'000) {
    HeardJob heard(nasty("4"));
    let_run(delay_us);
    heard.job.signal(SIGKILL);
    CHECK(heard.ends_within(1s));
  }
}

TEST_CASE("a daemon left by ranks that succeeded ends with the job") {
  Running job(rondorun({"sh", "-c", "setsid sh -c 'echo pid $$; exec sleep 600' & exec sleep 0.3"}));
  const Watched daemon(job.lines("pid ", 1));
  const auto ended = job.wait();
  CHECK(ended.code == 0);
  CHECK(daemon.all_gone_within(0s));
}

TEST_CASE("ranks that ignore everything are gone after the grace period") {
  Running job(nasty("2"));
  const Watched all(job.lines("pid ", 2 * kPidsOfRank));
  job.signal(SIGTERM);
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGTERM);
  CHECK(all.all_gone_within(0s));
}

TEST_CASE("a job under timeout leaves nothing") {
  auto command = nasty("2");
  command.insert(command.begin(), {"timeout", "--signal=KILL", "0.5"});
  Running job(command);
  const Watched all(job.lines("pid ", 2 * kPidsOfRank));
  CHECK(job.wait().code == 128 + SIGKILL);
  CHECK(all.all_gone_within(1s));
}

TEST_CASE("the two ways to find all descendants agree") {
  Running job(nasty("2"));
  job.lines("pid ", 2 * kPidsOfRank);
  const auto sorted = [](std::vector<pid_t> pids) {
    std::sort(pids.begin(), pids.end());
    return pids;
  };
  std::vector<pid_t> quick, slow;
  for (int attempt = 0; attempt < 100; ++attempt) {  // what only starts the others may end in between
    quick = sorted(rondo::process::descendants());
    slow = sorted(rondo::process::descendants_by_scan());
    if (sorted(rondo::process::descendants()) == quick) break;
  }
  CHECK(quick == slow);
  CHECK(quick.size() >= 3 + 2 * kPidsOfRank);
}
