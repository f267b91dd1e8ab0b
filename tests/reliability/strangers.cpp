// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of a job. How soon does it meet, however few descriptors its ranks have? And how long do its
// calls take, by what they take without them? Ranks and server have one core for that, strangers another one, as they
// would have machines of their own.
#include <fmt/format.h>

#include <future>
#include <sstream>
#include <thread>

#include "tests/process/flooded_job.hpp"
#include "tests/reliability/subjects.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/flood.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kStrangers = 6000;
constexpr double kMeetsWithinMs = 2000, kMostTimes = 2;
constexpr auto kPhase = 1500ms, kSettles = 300ms;  // of an attack; before it is looked at
constexpr const char* kFiles[] = {"64", "128", "256", "512", "1024", "4096"};
struct Attack {
  const char* name;
  Flood::Says says;
};
constexpr Attack kAttacks[] = {{"nothing", Flood::Says::nothing},
                               {"garbage", Flood::Says::garbage},
                               {"a length of 8 GiB", Flood::Says::length},
                               {"a byte now and then", Flood::Says::drops}};

std::vector<std::uint16_t> ports_of(std::uint16_t port, std::uint16_t first_of_ranks) {
  std::vector<std::uint16_t> ports{port, port, port};
  for (int i = 0; i <= 2 * FloodedJob::kRanks; ++i) ports.push_back(static_cast<std::uint16_t>(first_of_ranks + i));
  return ports;
}

double meet(const char* files, const Attack& attack, const SecretFile& secret) {
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  const Flood flood(ports_of(port, first_of_ranks), kStrangers, attack.says);
  FloodedJob job(files, port, first_of_ranks, secret, [&] {
    const auto until = Clock::now() + 20s;
    while (flood.connected() < kStrangers / 2 && Clock::now() < until) std::this_thread::yield();
  });
  return static_cast<double>(job.meets_within_ms());
}

// Of the windows from now on: the median of their 99th percentiles, in us.
double p99_of_phase(Running& rank) {
  const auto from = Clock::now() + kSettles;
  std::this_thread::sleep_for(kPhase);
  Times windows;
  for (const std::string& line : rank.lines_so_far("window ")) {
    std::istringstream words(line);
    long long at_us = 0;
    double p50 = 0, p99 = 0;
    words >> at_us >> p50 >> p99;
    if (Clock::time_point(std::chrono::microseconds(at_us)) > from) windows.add(p99);
  }
  return windows.at(0.5);
}

// The result of `make`, and all threads and processes that it starts, on one core.
template <class Make>
auto on_core(std::uint32_t core, Make make) {
  auto made = std::async(std::launch::async, [&] { return run_on({core}) ? make() : nullptr; }).get();
  if (!made) throw std::runtime_error(fmt::format("cannot bind a thread to core {}", core));
  return made;
}

struct Beside {
  double quiet = 0, strangers = 0;
};

// Rank 0's server and the ranks' ports are there while the job meets; who runs has closed what it does not need.
Beside run_beside(FloodedJob& job, const std::vector<std::uint16_t>& ports, const Attack& attack, std::uint32_t core) {
  Beside beside{.quiet = p99_of_phase(job.ranks.front())};
  const auto flood = on_core(core, [&] { return std::make_unique<Flood>(ports, kStrangers, attack.says); });
  beside.strangers = p99_of_phase(job.ranks.front());
  return beside;
}

}  // namespace

void measure_strangers(const Given& given, Report& report) {
  const SecretFile secret("strangers");
  report.say(fmt::format("a job of {} meets beside {} strangers, ms\n{:22}{}", FloodedJob::kRanks, kStrangers,
                         "descriptors, at most", "  of those who say nothing, garbage"));
  Times meetings;
  for (const char* files : kFiles) {
    const double silent = meet(files, kAttacks[0], secret), loud = meet(files, kAttacks[1], secret);
    report.say(fmt::format("{:>20} {:8.0f} {:8.0f}", files, silent, loud));
    meetings.add(silent);
    meetings.add(loud);
  }
  report.at_most("the longest meeting", meetings.at(1), kMeetsWithinMs, "ms");

  const std::vector<std::uint32_t> cores = allowed_cores();
  if (cores.size() < 2) return report.say("calls beside strangers: skipped, there is one core for both");
  report.say(fmt::format("all_reduce of 8 bytes over tcp, {} ranks on one core, p99 in us\n{:22} {:>8} {:>10} {:>7}",
                         FloodedJob::kRanks, "strangers say", "quiet", "strangers", "times"));
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  const auto job = on_core(cores[0], [&] {
    return std::make_unique<FloodedJob>(
        "4096", port, first_of_ranks, secret, [] {}, tool("clocked"));
  });
  job->meets_within_ms();
  Times ratios;
  for (const Attack& attack : kAttacks) {
    Times quiet, strangers, times;
    for (std::size_t round = 0; round < given.count; ++round) {
      const Beside beside = run_beside(*job, ports_of(port, first_of_ranks), attack, cores[1]);
      quiet.add(beside.quiet);
      strangers.add(beside.strangers);
      times.add(beside.strangers / beside.quiet);
    }
    report.say(
        fmt::format("{:22} {:8.0f} {:10.0f} {:7.2f}", attack.name, quiet.at(0.5), strangers.at(0.5), times.at(0.5)));
    ratios.add(times.at(0.5));
  }
  report.at_most("p99 beside strangers, by that without:", ratios.at(1), kMostTimes, "times");
}

}  // namespace rondo::test
