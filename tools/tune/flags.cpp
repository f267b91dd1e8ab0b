// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "comm/setup/tuning.hpp"
#include "tools/command_line.hpp"

namespace rondo::tune {
namespace {

bool is_of_device(const comm::TuningField& field) { return field.trial.buffers == comm::TuningTrial::Buffers::device; }

std::vector<std::string> names() {
  std::vector<std::string> all{std::string(comm::kLinksName)};
  for (const comm::TuningField& field : comm::tuning_fields()) {
    if (field.trial.is_tried()) all.emplace_back(field.name);
  }
  return all;
}

// A name of the one kind of run in the other would be passed over.
void check_names(const Flags& flags) {
  const auto fields = comm::tuning_fields();
  for (const std::string& name : flags.only) {
    const auto of_device = std::any_of(fields.begin(), fields.end(),
                                       [&](const auto& field) { return field.name == name && is_of_device(field); });
    if (of_device == flags.on_device()) continue;
    throw CLI::ValidationError("--only", of_device
                                             ? fmt::format("{} is of devices, so --device cuda finds it out", name)
                                             : fmt::format("{} is not of devices; leave out --device", name));
  }
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app("Measures what RONDO_TUNING should say on this machine.");
  auto* ranks = app.add_option("-n,--ranks", flags.ranks,
                               "processes to start here; default: one per core, with --device one per GPU, at least 2");
  ranks->check(CLI::Range(2, 1024));
  app.add_option("-t,--threads", flags.threads, "ranks as threads of this process, which do not take turns on a GPU")
      ->check(CLI::Range(2, 64))
      ->excludes(ranks);
  app.add_option("--device", flags.device, "tune what is of devices: cuda; sim, the same on the CPU; cpu: what is not")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("-r,--rounds", flags.rounds, "turns that each value gets")->check(CLI::Range(1, 100));
  app.add_option("-o,--output", flags.output, "the file to write; default: standard output");
  app.add_option("--only", flags.only, "tune these alone")->delimiter(',')->check(CLI::IsMember(names()));
  app.final_callback([&] { check_names(flags); });
  return rondo::parse(app, "rondo-tune", argc, argv);
}

}  // namespace rondo::tune
