// SPDX-License-Identifier: Apache-2.0
// Every way in which ranks come to be, and what they can do after a failure: survivors agree on who they are.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

constexpr int kRanks = 4;

// A directory for a meeting's file, gone afterwards.
class Directory {
 public:
  Directory() : path_(::mkdtemp(name_)) {}
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }

 private:
  char name_[32] = "/tmp/rondo-survival-XXXXXX";
  std::string path_;
};

int next_port() {  // one host: the number names the job, and no such port is bound
  static int port = 20'000 + ::getpid() % 20'000;
  return port++;
}

// The output of all ranks, however they came to be.
std::string output_of(const std::string& way, const std::string& scenario, const std::string& transport,
                      long delay_us = 0) {
  const std::string program = tool("survivor");
  std::vector<std::string> environment{"RONDO_TRANSPORT=" + transport};
  if (way == "threads" || way == "spawn") return run({program, way, scenario}, {.environment = environment}).out;
  if (way == "rondorun") {
    return run(rondorun({"--nproc-per-node", std::to_string(kRanks), "--prefix", "none", program, "env", scenario}),
               {.environment = environment})
        .out;
  }
  const Directory directory;
  const std::string port = std::to_string(next_port());
  const std::string url = way == "file" ? "file://" + directory.path() + "/meeting" : "tcp://127.0.0.1:" + port;
  std::deque<Running> ranks;
  for (int r = 0; r < kRanks; ++r) {
    auto own = environment;
    if (way == "env") {
      for (const auto& variable : {"RANK=" + std::to_string(r), std::string("WORLD_SIZE=4"),
                                   std::string("MASTER_ADDR=127.0.0.1"), "MASTER_PORT=" + port})
        own.push_back(variable);
    }
    ranks.emplace_back(std::vector<std::string>{program, way == "env" ? "env" : "url", scenario, std::to_string(r), url,
                                                std::to_string(delay_us)},
                       Running::How{.environment = own});
  }
  std::string all;
  for (auto& rank : ranks) all += rank.wait().out;
  return all;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Shrunk, shrunk once more, the shrunk one shrunk, and the halves by rank, from the last to the first.
std::vector<std::string> expected_of(const std::vector<int>& survivors) {
  std::string list;
  std::string halves[2];
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    const std::string own = std::to_string(survivors[i]);
    list += (list.empty() ? "" : ", ") + own;
    std::string& half = halves[i % 2];
    half = own + (half.empty() ? "" : ", ") + half;
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < survivors.size(); ++i)
    lines.push_back(fmt::format("survivor {}: [{}] [{}] [{}] [{}]", survivors[i], list, list, list, halves[i % 2]));
  return lines;
}

}  // namespace

TEST_CASE("after an abort nobody is dead, and every way's ranks go on together") {
  const std::string way = GENERATE("threads", "spawn", "rondorun", "env", "tcp", "file");
  const std::string transport = GENERATE("shm", "tcp");
  if (way == "threads" && transport == "tcp") return;
  INFO(way << " over " << transport);
  CHECK(sorted_lines(output_of(way, "abort", transport)) == expected_of({0, 1, 2, 3}));
}

TEST_CASE("a rank that is killed, or goes, is missed by all that remain") {
  const std::string scenario = GENERATE("killed", "left", "first");
  const std::string way = GENERATE("threads", "spawn", "rondorun", "env", "tcp", "file");
  const std::string transport = GENERATE("shm", "tcp");
  if (way == "threads" && (transport == "tcp" || scenario != "left")) return;
  INFO(scenario << ": " << way << " over " << transport);
  const std::vector<int> survivors = scenario == "first" ? std::vector<int>{1, 2, 3} : std::vector<int>{0, 1, 3};
  CHECK(sorted_lines(output_of(way, scenario, transport)) == expected_of(survivors));
}

TEST_CASE("a rank that dies while the survivors meet is left out at once") {
  const std::string way = GENERATE("env", "file");
  const std::string transport = GENERATE("shm", "tcp");
  const long delay_us = GENERATE(1, 500, 1000, 2000, 3000, 5000, 8000, 20'000);
  INFO(way << " over " << transport << ", " << delay_us << " us after shrink() began");
  const auto began = std::chrono::steady_clock::now();
  const auto lines = sorted_lines(output_of(way, "during", transport, delay_us));
  CHECK(lines == std::vector<std::string>{"survivor 0: [0, 3]", "survivor 3: [0, 3]"});
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));  // a third of the join timeout
}
