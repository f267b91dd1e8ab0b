// SPDX-License-Identifier: Apache-2.0
// Ranks are killed at random moments: when do the others know, and whom do they blame?
#include <fmt/format.h>

#include <deque>
#include <map>
#include <random>
#include <sstream>

#include <rondo/collective.hpp>

#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/reliability/places.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

constexpr int kLatestUs = 20'000;  // after all have begun
constexpr double kHostMs = 50, kBetweenHostsMs = 100;

constexpr const char* kPhases[] = {"calling", "waiting", "computing", "windows"};
constexpr const char* kCounts[] = {"1", "1000", "60000", "400000"};

struct Kill {
  std::string collective, phase, count;
  int victim = 0, after_us = 0;
  explicit Kill(std::mt19937& random) {
    const auto draw = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    collective = collective_table()[draw(kCollectiveCount)].name;
    phase = kPhases[draw(std::size(kPhases))];
    count = kCounts[draw(std::size(kCounts))];
    victim = static_cast<int>(draw(kRanks));
    after_us = static_cast<int>(draw(kLatestUs));
  }
  std::string describe() const {
    return fmt::format("{} of {} elements, {}, rank {} after {} us", collective, count, phase, victim, after_us);
  }
  Words arguments() const { return {collective, phase, std::to_string(victim), count}; }
};

// What the survivors of kills said.
struct Blame {
  Times times;
  std::size_t kills = 0, wrong = 0, silent = 0;
  void add(const Blame& more) {
    times.add(more.times);
    kills += more.kills;
    wrong += more.wrong;
    silent += more.silent;
  }
  static std::string head() {
    return fmt::format("{:26} {:>6} {} {:>6} {:>6}", "", "kills", Times::head(8), "wrong", "silent");
  }
  std::string row(const std::string& name) const {
    return fmt::format("{:26} {:6} {} {:6} {:6}", name, kills, times.row(8), wrong, silent);
  }
};

class Blames {
 public:
  explicit Blames(Report& report) : report_(report) {}
  void add(const std::string& place, const Kill& kill, const std::vector<std::string>& said, long long killed_us) {
    Blame blame;
    blame.kills = 1;
    for (const std::string& line : said) {
      std::istringstream words(line);
      long long at_us = 0;
      int rank = -1, culprit = -1;
      words >> at_us >> rank >> culprit;
      blame.times.add(static_cast<double>(at_us - killed_us) / 1e3);
      if (culprit == kill.victim) continue;
      ++blame.wrong;
      report_.say(fmt::format("wrong: {}, {}: {}", place, kill.describe(), line));
    }
    blame.silent = kRanks - 1 - std::min<std::size_t>(said.size(), kRanks - 1);
    if (blame.silent > 0) report_.say(fmt::format("silent: {}, {}", place, kill.describe()));
    for (const auto& row : {"at " + place, "while " + kill.phase, "in " + kill.collective, std::string("all")})
      rows_[row].add(blame);
  }
  void judge(double limit_ms) {
    report_.say(Blame::head());
    for (const auto& [name, blame] : rows_) report_.say(blame.row(name));
    const Blame& all = rows_["all"];
    report_.at_most("p99 of the time from the kill to a survivor's error", all.times.at(0.99), limit_ms, "ms");
    report_.none("wrong culprits:", all.wrong, all.times.count());
    report_.none("survivors that said nothing:", all.silent, all.kills * (kRanks - 1));
  }

 private:
  Report& report_;
  std::map<std::string, Blame> rows_;
};

long long now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// How far the ranks have come by then is what varies.
long long kill_after(int us, pid_t pid) {
  const timespec delay{.tv_sec = 0, .tv_nsec = us * 1000L};
  ::nanosleep(&delay, nullptr);
  const auto at_us = now_us();
  ::kill(pid, SIGKILL);
  return at_us;
}

}  // namespace

void measure_kills(const Given& given, Report& report) {
  std::mt19937 random(given.seed);
  Blames blames(report);
  for (std::size_t i = 0; i < given.count; ++i) {
    const Place& place = kPlaces[i % std::size(kPlaces)];
    const Kill kill(random);
    std::string command = "exec " + tool("target");
    for (const auto& word : kill.arguments()) command += " " + word;
    command += std::string(" ") + place.node;
    Running job(rondorun({"--nproc-per-node", std::to_string(kRanks), "sh", "-c", command}),
                {.environment = {"RONDO_TRANSPORT=" + std::string(place.transport)}});
    pid_t victim = 0;
    for (const auto& line : job.lines("joined ", kRanks)) {
      if (std::stoi(line) == kill.victim) victim = std::stoi(line.substr(line.find(' ')));
    }
    const auto killed_us = kill_after(kill.after_us, victim);
    job.wait();
    blames.add(place.name, kill, job.lines_so_far("error "), killed_us);
  }
  blames.judge(kHostMs);
}

void measure_kills_of_hosts(const Given& given, Report& report) {
  std::mt19937 random(given.seed);
  Blames blames(report);
  const std::deque<Host> hosts(2);
  connect(hosts[0], hosts[1]);
  for (int i = 0; i < 2; ++i) hosts[static_cast<std::size_t>(i)].add_address(fmt::format("10.77.0.{}/24", i + 1));
  const SecretFile secret("kills");
  for (std::size_t i = 0; i < given.count; ++i) {
    const Kill kill(random);
    std::deque<Running> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back(
          hosts[static_cast<std::size_t>(rank / 2)].inside(Words{tool("target")} + kill.arguments()),
          Running::How{.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kRanks),
                                       "MASTER_ADDR=10.77.0.1", "MASTER_PORT=29500",
                                       "RONDO_SECRET_FILE=" + secret.path.string()}});
    }
    for (Running& rank : ranks) rank.lines("joined ", 1);
    const auto killed_us = kill_after(kill.after_us, ranks[static_cast<std::size_t>(kill.victim)].pid());
    std::vector<std::string> said;
    for (Running& rank : ranks) {
      rank.wait();
      for (const auto& line : rank.lines_so_far("error ")) said.push_back(line);
    }
    blames.add(kill.victim == 0 ? "rank 0, which serves" : "others", kill, said, killed_us);
  }
  blames.judge(kBetweenHostsMs);
}

}  // namespace rondo::test
