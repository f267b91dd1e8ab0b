// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of a job: it meets as fast as without them, however few descriptors its ranks may have, keeps
// none of theirs, and says little of them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/process/flooded_job.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/flood.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int kRanks = FloodedJob::kRanks;
constexpr std::size_t kStrangers = 6000;
constexpr long kMeetsWithinMs = 2000;
constexpr std::size_t kMayHoldForStrangers =
    32;  // while they are there: 16 that say nothing, 16 that are being refused

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator begin("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

// Looks until it is so few, for some seconds.
bool falls_to(pid_t pid, std::size_t few) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (descriptors_of(pid) > few) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

void await_strangers(const Flood& flood) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (flood.connected() < kStrangers / 2) {
    if (std::chrono::steady_clock::now() > until) FAIL("only " << flood.connected() << " strangers got through");
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a job meets beside strangers, however few descriptors it may have, and keeps none of theirs") {
  const std::string files = GENERATE("64", "256", "1024");
  const auto says = GENERATE(Flood::Says::nothing, Flood::Says::garbage);
  CAPTURE(files, static_cast<int>(says));
  const SecretFile secret("strangers");
  std::vector<std::size_t> quiet;
  {
    FloodedJob job(files, free_port(), free_port(), secret, [] {});
    job.meets_within_ms();
    for (const Running& rank : job.ranks) quiet.push_back(descriptors_of(rank.pid()));
  }
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  std::vector<std::uint16_t> ports{port, port, port};
  for (int i = 0; i <= 2 * kRanks; ++i) ports.push_back(static_cast<std::uint16_t>(first_of_ranks + i));
  auto flood = std::make_unique<Flood>(ports, kStrangers, says);
  const auto begun = std::chrono::steady_clock::now();
  FloodedJob job(files, port, first_of_ranks, secret, [&] { await_strangers(*flood); });
  CHECK(job.meets_within_ms() < kMeetsWithinMs);
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    CHECK(descriptors_of(job.ranks[i].pid()) <= quiet[i] + kMayHoldForStrangers);
  }
  CHECK(flood->met() > 0);
  flood.reset();
  for (std::size_t i = 0; i < job.ranks.size(); ++i) CHECK(falls_to(job.ranks[i].pid(), quiet[i]));
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begun;
  for (Running& rank : job.ranks) rank.signal(SIGTERM);
  for (Running& rank : job.ranks) {
    const auto ended = rank.wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    const auto lines = std::count(ended.err.begin(), ended.err.end(), '\n');
    CHECK(static_cast<double>(lines) < 10 + 4 * lasted.count());
  }
}

TEST_CASE("a process joins a job that runs beside strangers, as soon as the job wants it") {
  const auto says = GENERATE(Flood::Says::nothing, Flood::Says::garbage);
  CAPTURE(static_cast<int>(says));
  const SecretFile secret("strangers");
  const std::uint16_t port = free_port();
  const std::string place = "tcp://127.0.0.1:" + std::to_string(port), wanted = secret.path.string() + ".wanted";
  std::deque<Running> processes;
  const auto start = [&](std::vector<std::string> words) -> Running& {
    words.insert(words.begin(), tool("grower"));
    words.insert(words.begin() + 2, place);
    return processes.emplace_back(words, Running::How{.environment = {"RONDO_SECRET_FILE=" + secret.path.string()}});
  };
  for (const char* role : {"0/2", "1/2"}) start({role, "until=" + wanted, "grow=3", "all"});
  for (Running& rank : processes) rank.lines("joined ", 1);
  const Flood flood({port}, kStrangers, says);
  await_strangers(flood);
  Running& spare = start({"spare", "all"});
  spare.lines("starting ", 1);
  const auto begun = std::chrono::steady_clock::now();
  std::ofstream(wanted).close();
  spare.lines("joined ", 1);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  std::printf("joined within %.0f ms\n", took.count());
  CHECK(took.count() < kMeetsWithinMs);
  for (Running& process : processes) {
    const auto ended = process.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
  std::filesystem::remove(wanted);
}
