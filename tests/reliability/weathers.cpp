// SPDX-License-Identifier: Apache-2.0
// Jobs of three hosts, each on a network of its own with a weather of its own, all at the same time: how often is a
// rank taken for lost that is not, and how soon is a host named that is cut off at last?
#include <fmt/format.h>

#include <deque>
#include <future>
#include <optional>
#include <sstream>

#include "comm/base/pulse.hpp"
#include "tests/process/network.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kHosts = 3;
constexpr int kMembers = 4;  // the last is on the first host, too
constexpr double kNamedWithinMs = 3000;
constexpr auto kAfterwards = 120s;  // that ranks would go on, were nobody cut off

struct Sky {
  const char* name;
  Weather weather;
  std::chrono::milliseconds cut{};  // of one host after the other, as long as there is none
};
const Sky kSkies[] = {{"1 % lost", {.loss = 0.01}},
                      {"5 % lost", {.loss = 0.05}},
                      {"10 % lost", {.loss = 0.1}},
                      {"50 +- 20 ms", {.delay = 50ms, .jitter = 20ms}},
                      {"cuts of half the patience", {}, kLinkPatience / 2}};

struct Outcome {
  std::uint64_t carried = 0, lost = 0;
  double seconds = 0;
  std::size_t alarms = 0, wrong = 0;
  Times named;
};

class Job {
 public:
  Job(const Network& network, const std::string& mode, std::chrono::seconds duration, const std::string& secret) {
    for (std::size_t rank = 0; rank < kMembers; ++rank) {
      const Words command{tool("patient"), mode, std::to_string((duration + kAfterwards).count())};
      ranks_.emplace_back(
          network.host(rank % kHosts).inside(command),
          Running::How{
              .environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kMembers),
                              "MASTER_ADDR=" + Network::address(0), "MASTER_PORT=29500", "RONDO_SECRET_FILE=" + secret},
              .limit = 60s});
    }
    for (Running& rank : ranks_) rank.lines("joined ", 1);
  }
  // What the first rank says that has failed.
  std::optional<std::string> failure() {
    for (Running& rank : ranks_) {
      const auto said = rank.lines_so_far("error ");
      if (!said.empty()) return said.front();
    }
    return std::nullopt;
  }
  // Of each rank: when it failed and whom it blames.
  std::vector<std::pair<long long, int>> verdicts() {
    std::vector<std::pair<long long, int>> all;
    for (Running& rank : ranks_) {
      std::istringstream words(rank.lines("error ", 1).front());
      auto& [at_us, culprit] = all.emplace_back();
      words >> at_us >> culprit;
    }
    return all;
  }

 private:
  std::deque<Running> ranks_;
};

// Until somebody fails or the time is up; how many hosts were cut off in turn is no matter.
std::optional<std::string> live(Network& network, Job& job, const Sky& sky, Clock::time_point until) {
  network.set(sky.weather);
  for (std::size_t host = 0; Clock::now() < until; host = (host + 1) % kHosts) {
    if (sky.cut > 0ms) network.cut(host, true);
    std::this_thread::sleep_for(sky.cut > 0ms ? sky.cut : 1000ms);
    if (sky.cut > 0ms) network.cut(host, false);
    if (sky.cut > 0ms) std::this_thread::sleep_for(sky.cut);
    if (auto failure = job.failure()) return failure;
  }
  return std::nullopt;
}

Outcome measure(const Sky& sky, const std::string& mode, const Given& given, const std::string& secret,
                Report& report) {
  Network network(kHosts, given.seed);
  Job job(network, mode, given.duration, secret);
  const auto begun = Clock::now();
  const auto failure = live(network, job, sky, begun + given.duration);
  Outcome outcome{.carried = network.carried(),
                  .lost = network.lost(),
                  .seconds = std::chrono::duration<double>(Clock::now() - begun).count(),
                  .named = {}};
  if (failure) {
    ++outcome.alarms;
    report.say(fmt::format("false alarm, {}, {}, after {:.1f} s: {}", sky.name, mode, outcome.seconds, *failure));
    return outcome;
  }
  constexpr std::size_t kCutHost = 2;
  const auto cut_at = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  network.cut(kCutHost, true);
  for (const auto& [at_us, culprit] : job.verdicts()) {
    outcome.named.add(static_cast<double>(at_us - cut_at) / 1e3);
    if (culprit != static_cast<int>(kCutHost)) ++outcome.wrong;
  }
  return outcome;
}

}  // namespace

void measure_weathers(const Given& given, Report& report) {
  const SecretFile secret("weathers");
  struct Row {
    const Sky& sky;
    const char* mode;
    std::future<Outcome> outcome;
  };
  std::vector<Row> rows;
  for (const Sky& sky : kSkies) {
    for (const char* mode : {"idle", "busy"}) {
      rows.push_back({sky, mode, std::async(std::launch::async, [&, mode] {
                        return measure(sky, mode, given, secret.path.string(), report);
                      })});
    }
  }
  Times named;
  std::size_t alarms = 0, wrong = 0;
  std::vector<std::string> table;
  for (Row& row : rows) {
    const Outcome outcome = row.outcome.get();
    table.push_back(fmt::format("{:26} {:5} {:8.0f} {:10} {:8} {:6} {:14.0f}", row.sky.name, row.mode, outcome.seconds,
                                outcome.carried, outcome.lost, outcome.alarms, outcome.named.at(1)));
    named.add(outcome.named);
    alarms += outcome.alarms;
    wrong += outcome.wrong;
  }
  report.say(fmt::format("{:26} {:5} {:>8} {:>10} {:>8} {:>6} {:>14}", "", "", "seconds", "packets", "lost", "alarms",
                         "cut named, ms"));
  for (const auto& row : table) report.say(row);
  report.none("false alarms:", alarms, rows.size());
  report.none("ranks that named another than the host that was cut off:", wrong, named.count());
  report.at_most("the longest time until a rank named it", named.at(1), kNamedWithinMs, "ms");
}

}  // namespace rondo::test
