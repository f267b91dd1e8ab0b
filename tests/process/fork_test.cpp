// SPDX-License-Identifier: Apache-2.0
// Ranks that fork: a child's end is not its parent's, a child that lives does not hide its parent's death, and a child
// that uses what it inherited is told that it cannot.
#include <fmt/format.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "rendezvous/secret.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string path_of(const std::string& what) {
  static int made = 0;
  return std::filesystem::temp_directory_path() / fmt::format("rondo-fork-{}-{}-{}", what, ::getpid(), ++made);
}

// A name and a port that nobody else uses now, for ranks that meet by a url.
std::string port_here() { return std::to_string(20'000 + ::getpid() % 20'000); }

// A job started in one of the ways there are. By hand its ranks are processes of ours, under a launcher one is.
struct Job {
  std::deque<Running> processes;
  std::string file;  // where they meet; a rank 0 that is killed leaves it

  ~Job() {
    if (!file.empty()) std::filesystem::remove(file);
  }
  Job(const Job&) = delete;
  Job(const std::string& how, int world_size, int who, const std::string& mode, std::vector<std::string> environment) {
    const std::string size = std::to_string(world_size);
    // In a child LeakSanitizer takes what the threads left behind held for lost, and ThreadSanitizer starts no thread.
    environment.insert(environment.end(), {"ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=die_after_fork=0"});
    const std::vector<std::string> program{tool("forker"), std::to_string(who), mode};
    const auto with = [&](std::vector<std::string> command, const std::vector<std::string>& more) {
      command.insert(command.end(), more.begin(), more.end());
      return command;
    };
    if (how == "rondorun") {
      processes.emplace_back(with(rondorun({"--nproc-per-node", size, "--prefix", "none"}), program),
                             Running::How{.environment = environment});
    } else if (how == "spawn") {
      processes.emplace_back(with(program, {"spawn", size}), Running::How{.environment = environment});
    } else {
      if (how == "file") file = path_of("meeting");
      const std::string url = how == "file" ? "file://" + file : "tcp://127.0.0.1:" + port_here();
      for (int rank = 0; rank < world_size; ++rank) {
        auto own = environment;
        std::vector<std::string> place{url, std::to_string(rank), size};
        if (how == "env") {
          place.clear();
          const auto set = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + size, std::string("MASTER_ADDR=127.0.0.1"),
                            "MASTER_PORT=" + port_here()};
          own.insert(own.end(), set.begin(), set.end());
        }
        processes.emplace_back(with(program, place), Running::How{.environment = own});
      }
    }
  }

  // Ended well, all of them; what they printed.
  std::string wait_well() {
    std::string out;
    for (auto& process : processes) {
      const auto ended = process.wait();
      INFO(ended.out << ended.err);
      CHECK(ended.code == 0);
      out += ended.out;
    }
    return out;
  }
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// Of "child PID of PARENT".
struct Child {
  explicit Child(Running& process)
      : line(process.lines("child ", 1).front()), watched({line.substr(0, line.find(' '))}) {}
  Child(const Child&) = delete;
  ~Child() { end(); }
  void end() const { ::kill(std::atoi(line.c_str()), SIGKILL); }
  int parent() const { return std::atoi(line.c_str() + line.rfind(' ')); }

  std::string line;
  Watched watched;
};

// The number behind `word` in the first line that begins with `text`.
long long microseconds(const std::string& out, const std::string& text) {
  const auto at = out.find(text);
  REQUIRE(at != std::string::npos);
  return std::atoll(out.c_str() + at + text.size());
}

}  // namespace

TEST_CASE("a child that ends takes nobody along") {
  const std::string how = GENERATE("rondorun", "spawn", "file", "env", "tcp");
  const std::string transport = GENERATE("shm", "tcp");
  int world_size = 2;
  for (const std::string mode : {"return", "exit", "_exit", "exec", "drop", "own"}) {
    CAPTURE(how, transport, mode);
    const int who = world_size - 1;
    Job job(how, world_size, who, mode, {"RONDO_TRANSPORT=" + transport});
    const std::string out = job.wait_well();
    INFO(out);
    CHECK(count_of(out, "goes on\n") == static_cast<std::size_t>(world_size));
    CHECK(count_of(out, "the child ended with 0\n") == 1);
    world_size = world_size == 4 ? 2 : world_size + 1;
  }
}

TEST_CASE("a child that throws out of a spawned rank's function is not that rank") {
  Job job("spawn", 3, 1, "throw", {});
  const auto ended = job.processes.front().wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count_of(ended.out, "goes on\n") == 3);
  CHECK(ended.out.find("the child ended with 1\n") != std::string::npos);
  CHECK(ended.err.find("that rank 1 forked failed: a child's own trouble\n") != std::string::npos);
}

TEST_CASE("a child cannot use its parent's communicator, by any call") {
  const std::string transport = GENERATE("shm", "tcp");
  const int who = GENERATE(0, 1);
  Job job("rondorun", 2, who, "use", {"RONDO_TRANSPORT=" + transport});
  const std::string out = job.wait_well();
  INFO(out);
  CHECK(out.find("refused") == std::string::npos);
  CHECK(out.find("it does not know") == std::string::npos);
  CHECK(count_of(out, "22 calls were tried\n") == 1);
  CHECK(count_of(out, "goes on\n") == 2);
}

TEST_CASE("kill -9 of a rank whose child lives: the others name it at once, and those by hand go on without it") {
  const std::string how = GENERATE("rondorun", "spawn", "file", "env", "tcp");
  const std::string transport = GENERATE("shm", "tcp");
  const int world_size = how == "file" ? 4 : 3, who = how == "env" ? 1 : world_size - 1;
  CAPTURE(how, transport);
  Job job(how, world_size, who, "stay", {"RONDO_TRANSPORT=" + transport});
  const bool by_hand = job.processes.size() > 1;
  const auto ready = [&](Running& process, std::size_t ranks) { process.lines("joined ", ranks); };
  for (auto& process : job.processes) ready(process, by_hand ? 1 : static_cast<std::size_t>(world_size));
  Running& parents = job.processes[by_hand ? static_cast<std::size_t>(who) : 0];
  const Child child(parents);
  const auto killed = now_us();
  ::kill(child.parent(), SIGKILL);
  int named = 0;
  for (std::size_t i = 0; i < job.processes.size(); ++i) {
    Running& process = job.processes[i];
    if (&process == &parents && by_hand) continue;
    if (by_hand) process.lines("shrunk to ", 1);
    if (!by_hand && how == "rondorun") process.lines("error at ", static_cast<std::size_t>(world_size - 1));
    const auto ended = process.wait();
    INFO(ended.out << ended.err);
    if (how == "spawn") {
      CHECK(ended.err.find(fmt::format("rank {} (pid ", who)) != std::string::npos);
      CHECK(ended.seconds < 5);
      continue;
    }
    for (std::size_t at = 0; (at = ended.out.find("error at ", at)) != std::string::npos; ++at) {
      const std::string error = ended.out.substr(at, ended.out.find('\n', at) - at);
      INFO(error);
      CHECK(microseconds(error, "error at ") - killed < 500'000);
      CHECK(error.find(fmt::format("rank {}", who)) != std::string::npos);
      ++named;
    }
    if (by_hand) {
      CHECK(ended.out.find(fmt::format("shrunk to {} at", world_size - 1)) != std::string::npos);
      CHECK(microseconds(ended.out, fmt::format("shrunk to {} at ", world_size - 1)) - killed < 3'000'000);
    }
  }
  if (how != "spawn") CHECK(named == world_size - 1);
  if (by_hand) {
    CHECK_FALSE(child.watched.all_gone_within(0s));  // it was there all the time
    child.end();
  }
  CHECK(child.watched.all_gone_within(5s));
}

TEST_CASE("the server of a rank that was killed is gone, and another in its place, though a child of that rank lives") {
  Job job("file", 3, 0, "stay", {});
  for (auto& process : job.processes) process.lines("joined ", 1);
  const Child child(job.processes[0]);
  const auto killed = now_us();
  job.processes[0].signal(SIGKILL);
  for (std::size_t rank : {1, 2}) {
    const auto ended = job.processes[rank].wait();
    INFO(ended.out << ended.err);
    CHECK(microseconds(ended.out, "error at ") - killed < 500'000);
    CHECK(microseconds(ended.out, "shrunk to 2 at ") - killed < 3'000'000);
  }
  CHECK_FALSE(child.watched.all_gone_within(0s));
}

TEST_CASE("a communicator that is a global object ends after main without a word") {
  const std::string device = GENERATE("cpu", "sim");
  const auto ended = run(rondorun({"--nproc-per-node", "2", "--", tool("global"), device}));
  CAPTURE(device, ended.err);
  CHECK(ended.code == 0);
  CHECK(count_of(ended.out, "the sum is 2\n") == 2);
  CHECK(count_of(ended.err, "rondo") == 0);
}

TEST_CASE("a place to meet is free again when rank 0 was killed, though a child of it lives") {
  const std::string secret = path_of("secret");
  rondo::rendezvous::Secret::generate().to_file(secret);
  const std::vector<std::string> environment{"RONDO_SECRET_FILE=" + secret};
  Job first("tcp", 2, 0, "stay", environment);
  for (auto& process : first.processes) process.lines("joined ", 1);
  const Child child(first.processes[0]);
  for (auto& process : first.processes) {
    const Watched watched({std::to_string(process.pid())});
    process.signal(SIGKILL);
    REQUIRE(watched.all_gone_within(5s));
  }
  Job second("tcp", 2, 1, "exit", environment);
  const std::string out = second.wait_well();
  INFO(out);
  CHECK(count_of(out, "goes on\n") == 2);
  CHECK_FALSE(child.watched.all_gone_within(0s));
  std::filesystem::remove(secret);
}

TEST_CASE(
    "a process may fork while a thread of it makes communicators: no child holds the place or uses what is not its "
    "own") {
  const std::string secret = path_of("secret");
  rondo::rendezvous::Secret::generate().to_file(secret);
  Running process({tool("racing_forker"), "tcp://127.0.0.1:" + port_here(), "60"},
                  Running::How{.environment = {"RONDO_SECRET_FILE=" + secret, "ASAN_OPTIONS=detect_leaks=0",
                                               "TSAN_OPTIONS=die_after_fork=0"}});
  const auto ended = process.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(std::atoi(ended.out.c_str()) > 10);
  std::filesystem::remove(secret);
}
