// SPDX-License-Identifier: Apache-2.0
// One of four ranks calls something else, or comes when the others' deadline has passed: whom does each of them blame?
#include <fmt/format.h>

#include <future>
#include <sstream>

#include "tests/process/host.hpp"
#include "tests/reliability/places.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

constexpr std::size_t kTrialsOfJob = 25;  // at most

struct Tally {
  Times times;
  std::size_t reports = 0, wrong = 0, silent = 0;
  void add(const Tally& more) {
    times.add(more.times);
    reports += more.reports;
    wrong += more.wrong;
    silent += more.silent;
  }
};

void read(const std::string& what, const std::vector<std::string>& said, Tally& tally, Report& report) {
  for (const std::string& line : said) {
    std::istringstream words(line);
    int rank = -1, odd = -1, culprit = -1;
    double ms = 0;
    words >> rank >> odd >> culprit >> ms;
    ++tally.reports;
    if (rank != odd) tally.times.add(ms);
    if (culprit == odd) continue;
    ++tally.wrong;
    report.say(fmt::format("wrong, {}: {}", what, line));
  }
}

Tally one_job(const std::string& kind, const Place& place, std::size_t trials, unsigned seed, Report& report) {
  const std::string command = fmt::format("exec {} {} {} {} {}", tool("odd"), kind, seed, trials, place.node);
  Running job(rondorun({"--nproc-per-node", std::to_string(kRanks), "sh", "-c", command}),
              {.environment = {"RONDO_TRANSPORT=" + std::string(place.transport)}, .limit = std::chrono::seconds(120)});
  const Ended ended = job.wait();
  if (ended.code != 0) throw std::runtime_error(fmt::format("{} {}: {}", kind, place.name, ended.err));
  Tally tally;
  read(fmt::format("{} {}", kind, place.name), job.lines_so_far("said "), tally, report);
  for (const std::string& line : job.lines_so_far("silent ")) {
    ++tally.silent;
    report.say(fmt::format("silent, {} {}: {}", kind, place.name, line));
  }
  return tally;
}

// The jobs of one kind at one of so many places.
Tally measure(const std::string& kind, std::size_t jobs, std::size_t first, std::size_t stride, const Given& given,
              Report& report) {
  Tally all;
  const std::size_t trials = std::min(given.count, kTrialsOfJob);
  for (std::size_t i = first; i < jobs; i += stride) {
    all.add(one_job(kind, kPlaces[i % std::size(kPlaces)], trials, given.seed + static_cast<unsigned>(i), report));
  }
  return all;
}

void judge(Report& report, const std::string& kind, const Tally& tally) {
  report.none(fmt::format("wrong culprits of {}:", kind), tally.wrong, tally.reports);
  report.none(fmt::format("ranks without an error, {}:", kind), tally.silent, tally.reports);
}

}  // namespace

// As many of each kind. The deadlines of all places pass while the mismatches are measured.
void measure_odd_calls(const Given& given, Report& report) {
  const std::size_t jobs = (given.count + kTrialsOfJob - 1) / kTrialsOfJob;
  std::vector<std::future<Tally>> waiting;
  for (std::size_t place = 0; place < std::size(kPlaces); ++place) {
    waiting.push_back(std::async(std::launch::async, [&, place] {
      return measure("deadline", jobs, place, std::size(kPlaces), given, report);
    }));
  }
  const Tally odd = measure("mismatch", jobs, 0, 1, given, report);
  Tally late;
  for (auto& one : waiting) late.add(one.get());
  report.say(fmt::format("{:10} {}", "", Times::head(8)));
  report.say(fmt::format("{:10} {}", "mismatch", odd.times.row(8)));
  report.say(fmt::format("{:10} {}  of 1,500 that the deadline is", "deadline", late.times.row(8)));
  judge(report, "mismatches", odd);
  judge(report, "deadlines", late);
}

}  // namespace rondo::test
