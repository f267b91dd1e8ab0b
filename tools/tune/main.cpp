// SPDX-License-Identifier: Apache-2.0
// rondo-tune: measures on this machine what the communicator's thresholds should be, and writes them to a file for
// RONDO_TUNING. By itself it starts ranks here; under rondorun it tunes for the job's ranks and hosts.
// Exit status: 0 written, 1 it failed, 2 the flags are wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <string>

#include <rondo/rondo.hpp>

#include "comm/base/env.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "comm/setup/placement.hpp"
#include "tools/command_line.hpp"
#include "tools/tune/search.hpp"

namespace {

using namespace rondo;

struct Flags {
  int ranks = 0, rounds = 3;
  std::string output;
  std::vector<std::string> only;
};

std::vector<std::string> names() {
  std::vector<std::string> all{std::string(comm::kLinksName)};
  for (const comm::TuningField& field : comm::tuning_fields()) all.emplace_back(field.name);
  return all;
}

std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app("Measures what RONDO_TUNING should say on this machine.");
  app.add_option("-n,--ranks", flags.ranks, "processes to start here; default: one per core, at least 2")
      ->check(CLI::Range(2, 1024));
  app.add_option("-r,--rounds", flags.rounds, "turns that each value gets")->check(CLI::Range(1, 100));
  app.add_option("-o,--output", flags.output, "the file to write; default: standard output");
  app.add_option("--only", flags.only, "tune these alone")->delimiter(',')->check(CLI::IsMember(names()));
  return rondo::parse(app, "rondo-tune", argc, argv);
}

// Before anything is measured: whether the file can be written at all.
void open_output(const Flags& flags) {
  if (flags.output.empty() || std::ofstream(flags.output, std::ios::app)) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("cannot write {}", flags.output));
}

void write(const Flags& flags, const std::string& text) {
  if (flags.output.empty()) return fmt::print("{}", text);
  std::ofstream file(flags.output);
  file << text;
  if (!file.flush()) throw Error(ErrorCode::system, fmt::format("cannot write {}", flags.output));
}

void tune_for(const Flags& flags, Communicator& ranks) {
  if (ranks.world_size() < 2) {
    throw Error(ErrorCode::invalid_argument, "one rank has nothing to tune: start two or more");
  }
  const auto measure = [&](const comm::Tuning& tuning, bool over_sockets, std::span<const tune::Cell> cells) {
    Communicator tuned =
        tune::with_tuning(ranks, comm::to_text(tuning), over_sockets && ranks.local_size() == ranks.world_size());
    return tune::measure(tuned, cells);
  };
  const auto say = [&](const std::string& line) {
    if (ranks.rank() == 0) fmt::print(stderr, "{}\n", line);
  };
  const comm::Tuning found =
      tune::search({.world_size = ranks.world_size(), .rounds = flags.rounds, .only = flags.only}, measure, say);
  if (ranks.rank() == 0) {
    write(flags, fmt::format("# by rondo-tune on {}, {} ranks, {} on this host, {} cores\n{}", host_name(),
                             ranks.world_size(), ranks.local_size(), comm::usable_cores(), comm::to_text(found)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  Flags flags;
  if (const auto code = parse(argc, argv, flags)) return *code;
  try {
    if (env("RONDO_TUNING") || env("RONDO_TRANSPORT")) {
      throw Error(ErrorCode::invalid_argument, "unset RONDO_TUNING and RONDO_TRANSPORT: both are set here in turn");
    }
    open_output(flags);
    const bool in_job = env("RANK").has_value();
    if (in_job && flags.ranks != 0) {
      throw Error(ErrorCode::invalid_argument, "--ranks is for starting ranks here, and this is a rank of a job");
    }
    if (in_job) {
      Communicator ranks = Communicator::from_environment();
      tune_for(flags, ranks);
      return 0;
    }
    const int count = flags.ranks != 0 ? flags.ranks : std::max(2, comm::usable_cores());
    return spawn(count, [&](Communicator& ranks) { tune_for(flags, ranks); });
  } catch (const std::exception& error) {
    complain("rondo-tune", error.what());
    return 1;
  }
}
