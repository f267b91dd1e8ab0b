// SPDX-License-Identifier: Apache-2.0
// reliability SUBJECT... [--count N] [--seconds N] [--seed N] [--busy]: what fails, how fast and how rightly it is
// noticed, and what is left. Prints a table and a verdict for every bound; ends with 1 where one is broken. --busy: on
// a machine that does other things, bounds of times are not judged. Of `moments`, also [--phase NAME] [--place NAME]
// [--rank N] [--call N]: those alone.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/process/network.hpp"
#include "tests/reliability/subjects.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

const Subject kSubjects[] = {
    {"kills", "SIGKILL of a rank of a host, in every collective and phase", {.count = 1000}, false, measure_kills},
    {"host-kills", "the same between two hosts", {.count = 300}, true, measure_kills_of_hosts},
    {"odd-calls", "ranks that call something else, or too late", {.count = 500}, false, measure_odd_calls},
    {"changes", "kills, joins and ends of the server in random sequences", {.count = 1000}, false, measure_changes},
    {"orders", "SIGKILLs of a job's processes in any order: what is left", {.count = 1000}, true, measure_orders},
    {"moments",
     "SIGKILL of a process at every system call of a short life; --count: a sample",
     {},
     true,
     measure_moments},
    {"strangers",
     "strangers at the ports of a job that meets, and of one that runs",
     {.count = 3},
     false,
     measure_strangers},
    {"weathers",
     "jobs of three hosts that lose, delay and hold back packets, then a cut",
     {.duration = 600s},
     true,
     measure_weathers},
};

struct Asked {
  std::vector<const Subject*> subjects;
  bool busy = false;
  unsigned count = 0, seconds = 0, seed = std::random_device{}();
  std::optional<unsigned> rank{}, call{};
  std::string phase{}, place{};
  bool of_moments() const { return rank || call || !phase.empty() || !place.empty(); }
};

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

unsigned number(std::string_view word) {
  unsigned value = 0;
  const auto end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (word.empty() || error != std::errc() || stop != end) throw Refused(fmt::format("'{}' is no number", word));
  return value;
}

const Subject& subject(std::string_view name) {
  for (const Subject& row : kSubjects)
    if (name == row.name) return row;
  throw Refused(fmt::format("'{}' is no subject; --help lists them", name));
}

void help() {
  fmt::print("reliability SUBJECT... [--count N] [--seconds N] [--seed N] [--busy]\n");
  fmt::print(
      "reliability moments [--phase NAME] [--place NAME] [--rank N] [--call N] [--count N] [--seed N] [--busy]\n");
  for (const Subject& row : kSubjects) {
    fmt::print("  {:14} {}{}{}\n", row.name, row.what,
               row.usual.count > 0 ? fmt::format("; --count {}", row.usual.count) : "",
               row.usual.duration > 0s ? fmt::format("; --seconds {}", row.usual.duration.count()) : "");
  }
}

void take(Asked& asked, std::string_view word, std::string_view value) {
  if (word == "--phase") return void(asked.phase = value);
  if (word == "--place") return void(asked.place = value);
  if (word == "--count") return void(asked.count = number(value));
  if (word == "--seconds") return void(asked.seconds = number(value));
  if (word == "--seed") return void(asked.seed = number(value));
  if (word == "--rank") return void(asked.rank = number(value));
  if (word == "--call") return void(asked.call = number(value));
  throw Refused(fmt::format("there is no {}", word));
}

Asked read(int count, char** words) {
  Asked asked;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with("--")) {
      asked.subjects.push_back(&subject(word));
      continue;
    }
    if (word == "--busy") {
      asked.busy = true;
      continue;
    }
    if (++i == count) throw Refused(fmt::format("{} needs a value, or does not exist", word));
    take(asked, word, words[i]);
  }
  if (asked.subjects.empty()) throw Refused("name a subject; --help lists them");
  for (const Subject* row : asked.subjects)
    if (asked.of_moments() && row->measure != measure_moments)
      throw Refused(fmt::format("--phase, --place, --rank and --call are of moments, not of {}", row->name));
  return asked;
}

// What slows all of this down, and what else to know before two runs are compared.
std::string load() {
  std::ifstream file("/proc/loadavg");
  std::string one, five;
  file >> one >> five;
  return fmt::format("load {} in the last minute, {} in the last five", one, five);
}

bool measure(const Subject& row, const Asked& asked) {
  Given given = row.usual;
  given.seed = asked.seed;
  given.phase = asked.phase;
  given.place = asked.place;
  given.rank = asked.rank ? static_cast<int>(*asked.rank) : -1;
  given.call = asked.call.value_or(0);
  if (asked.count > 0) given.count = asked.count;
  if (asked.seconds > 0) given.duration = std::chrono::seconds(asked.seconds);
  Report report(asked.busy);
  report.say(fmt::format("# {}: {} (--count {} --seconds {} --seed {})", row.name, row.what, given.count,
                         given.duration.count(), given.seed));
  report.say(fmt::format("# {} cores, {}", std::thread::hardware_concurrency(), load()));
  if (row.hosts && !networks_possible()) return true;
  const auto begun = std::chrono::steady_clock::now();
  try {
    row.measure(given, report);
  } catch (const std::exception& error) {
    report.say(fmt::format("BROKEN: {}", error.what()));
    return false;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  report.say(fmt::format("# took {:.0f} s; {}\n", took.count(), load()));
  return report.holds();
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "--help") == 0) return help(), 0;
  try {
    const Asked asked = read(count, words);
    bool held = true;
    for (const Subject* row : asked.subjects) held = measure(*row, asked) && held;
    return held ? 0 : 1;
  } catch (const Refused& why) {
    fmt::print(stderr, "reliability: {}\n", why.what());
    return 2;
  }
}
