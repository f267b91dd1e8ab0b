// SPDX-License-Identifier: Apache-2.0
// rondo-tune: measures on this machine what the communicator's thresholds should be, and writes them to a file for
// RONDO_TUNING. By itself it starts ranks here; under rondorun it tunes for the job's ranks and hosts.
// Exit status: 0 written, 1 it failed, 2 the flags are wrong.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include <rondo/rondo.hpp>

#include "comm/base/env.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "comm/setup/placement.hpp"
#include "tools/rondorun/gpus.hpp"
#include "tools/tune/device_measure.hpp"
#include "tools/tune/flags.hpp"
#include "tools/tune/threads.hpp"

namespace {

using namespace rondo;
using tune::Flags;

// The simulator runs a thousandth of what a GPU does.
constexpr std::uint64_t kMostSimulatedBytes = 16 << 10;

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

comm::Tuning search_host(const tune::Scope& scope, Communicator& ranks, const tune::Say& say) {
  const auto measure = [&](const comm::Tuning& tuning, bool over_sockets, std::span<const tune::Cell> cells) {
    Communicator tuned =
        tune::with_tuning(ranks, comm::to_text(tuning), over_sockets && ranks.local_size() == ranks.world_size());
    return tune::measure(tuned, cells);
  };
  return tune::search(scope, measure, say);
}

// One communicator at a time is on the device: a second one would have fewer blocks.
comm::Tuning search_device(tune::Scope scope, const Flags& flags, Communicator& ranks, const tune::Say& say) {
  if (flags.simulated()) scope.most_bytes = kMostSimulatedBytes;
  const auto measure = [&](const comm::Tuning& tuning, bool captured, std::span<const tune::Cell> cells) {
    std::vector<tune::Took> took;
    {
      Communicator tuned = tune::with_tuning(ranks, comm::to_text(tuning), flags.where(), flags.threads != 0);
      took = tune::measure_on_device(tuned, captured, cells);
    }
    ranks.barrier();
    return took;
  };
  return tune::search_device(scope, measure, say);
}

// What is of devices has its own lines alone, so that it can follow another file's.
std::string lines_of(const Flags& flags, const comm::Tuning& found) {
  if (!flags.on_device()) return comm::to_text(found);
  std::string text;
  if (flags.simulated()) text = "# simulated: GPU code run by the CPU; no value says anything about a GPU\n";
  for (const comm::TuningField& field : comm::tuning_fields()) {
    if (field.trial.buffers == comm::TuningTrial::Buffers::device) text += comm::to_text(found, field);
  }
  return text;
}

void tune_for(const Flags& flags, Communicator& ranks) {
  if (ranks.world_size() < 2) {
    throw Error(ErrorCode::invalid_argument, "one rank has nothing to tune: start two or more");
  }
  const auto say = [&](const std::string& line) {
    if (ranks.rank() == 0) fmt::print(stderr, "{}{}\n", line, flags.simulated() ? "  simulated" : "");
  };
  const tune::Scope scope{.world_size = ranks.world_size(), .rounds = flags.rounds, .only = flags.only};
  const comm::Tuning found =
      flags.on_device() ? search_device(scope, flags, ranks, say) : search_host(scope, ranks, say);
  if (ranks.rank() != 0) return;
  write(flags, fmt::format("# by rondo-tune on {}, {} ranks, {} on this host, {} cores\n{}", host_name(),
                           ranks.world_size(), ranks.local_size(), comm::usable_cores(), lines_of(flags, found)));
}

void check_environment(const Flags& flags) {
  if (env("RONDO_TUNING") || env("RONDO_TRANSPORT")) {
    throw Error(ErrorCode::invalid_argument, "unset RONDO_TUNING and RONDO_TRANSPORT: both are set here in turn");
  }
  if (env("RONDO_ALGORITHM") || env("RONDO_PROTOCOL")) {
    throw Error(ErrorCode::invalid_argument,
                "unset RONDO_ALGORITHM and RONDO_PROTOCOL: what is asked for by name goes by no threshold");
  }
  if (env("RANK") && flags.ranks + flags.threads != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--{} is for starting ranks here, and this is a rank of a job",
                                                         flags.ranks != 0 ? "ranks" : "threads"));
  }
}

int default_ranks(const Flags& flags) {
  const int all = flags.on_device() ? static_cast<int>(launcher::visible_gpus().size()) : comm::usable_cores();
  return std::max(2, all);
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  Flags flags;
  if (const auto code = tune::parse(argc, argv, flags)) return *code;
  try {
    check_environment(flags);
    open_output(flags);
    const auto body = [&](Communicator& ranks) { tune_for(flags, ranks); };
    if (env("RANK")) {
      Communicator ranks = Communicator::from_environment();
      body(ranks);
      return 0;
    }
    if (flags.threads != 0) {
      tune::run_threads(flags.threads, body);
      return 0;
    }
    return spawn(flags.ranks != 0 ? flags.ranks : default_ranks(flags), body);
  } catch (const std::exception& error) {
    complain("rondo-tune", error.what());
    return 1;
  }
}
