// SPDX-License-Identifier: Apache-2.0
// What each rank of this node gets: GPUs, cores, and the program that it runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "comm/base/env.hpp"
#include "tools/rondorun/gpus.hpp"
#include "tools/rondorun/options/words.hpp"

namespace rondo::launcher {
namespace {

struct Node {
  std::vector<std::string> gpus = visible_gpus();
  Cores cores = read_cores("/", allowed_cpus());
};

// It stays as it is while this process reads command lines: to look at it takes as long as to read one.
const Node& this_node() {
  static const Node node;
  return node;
}

void set_gpus(Options& options) {
  options.gpus = this_node().gpus;
  const int most = static_cast<int>(options.gpus.size());
  if (options.gpus_per_rank > most)
    refuse(fmt::format("--gpus-per-rank {}: this node has {} GPU{} to give", options.gpus_per_rank,
                       most == 0 ? "no" : std::to_string(most), most == 1 ? "" : "s"));
}

// None: as many as there are of something.
std::optional<int> given_count(const std::string& text) {
  if (text == "p") refuse("unknown flag -np, did you mean -n?; see rondorun --help");  // mpirun's, read as -n p
  if (text == "cpu" || text == "auto" || text == "gpu" || text == "cuda") return std::nullopt;
  return number(text, "--nproc-per-node", 1, 65536);
}

// Ranks on this node, of which each gets options.gpus_per_rank GPUs if that is not 0.
int local_size(const std::string& text, const Options& options) {
  if (text == "cpu" || (text == "auto" && options.gpus.empty())) return usable_cpus(options.cores);
  if (const auto count = given_count(text)) return *count;
  if (options.gpus.empty())
    refuse(fmt::format("--nproc-per-node {}: no GPU is found on this node; give the number of ranks", text));
  return std::max(1, static_cast<int>(options.gpus.size()) / std::max(1, options.gpus_per_rank));
}

// Of the GPUs that the ranks take by their local ranks, as far as the kernel says.
std::vector<int> gpu_nodes(const Options& options) {
  std::vector<int> nodes;
  for (int rank = 0; rank < options.local_size && !options.gpus.empty(); ++rank) {
    const auto gpu = static_cast<std::size_t>(rank * std::max(1, options.gpus_per_rank)) % options.gpus.size();
    const auto node = node_of_gpu("/", options.gpus[gpu]);
    if (!node) return {};
    nodes.push_back(*node);
  }
  return nodes;
}

Binding binding(const Words& words) {
  if (!words.bind.empty() && !words.numa_binding.empty()) refuse("--bind and --numa-binding exclude each other");
  if (!words.numa_binding.empty())
    return choice<Binding>(words.numa_binding, "--numa-binding",
                           {{"node", Binding::numa},
                            {"socket", Binding::socket},
                            {"exclusive", Binding::core},
                            {"core-complex", Binding::complex}});
  if (words.bind.empty()) return Binding::none;
  return choice<Binding>(words.bind, "--bind",
                         {{"none", Binding::none}, {"core", Binding::core}, {"numa", Binding::numa}});
}

// OpenMP takes every core that it may run on: right for one rank, unless a quota leaves less.
void set_shares(const Words& words, Options& options) {
  const Binding how = binding(words);
  const bool limited = usable_cpus(options.cores) < static_cast<int>(options.cores.cpus.size());
  options.sets_threads = (options.local_size > 1 || limited) && env_names_with_prefix("OMP_NUM_THREADS=").empty();
  options.shares = or_refuse([&] {
    return share_cores(options.cores, options.local_size, how,
                       how == Binding::none ? std::vector<int>{} : gpu_nodes(options));
  });
}

}  // namespace

void check_local_ranks(const Words& words) {
  given_count(words.nproc);
  binding(words);
}

void set_local_ranks(Words& words, Options& options) {
  set_gpus(options);
  options.cores = this_node().cores;
  options.local_size = local_size(words.nproc, options);
  set_shares(words, options);
  explain_ranks(words.explanation, options);
}

// As torchrun runs scripts: unbuffered, so that lines are seen when they are written.
void set_program(const Words& words, Options& options) {
  std::vector<std::string>& command = options.command;
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  if (command.empty() && words.explain) return;
  if (command.empty() || command.front().empty()) refuse("no program given: rondorun [flags] program [arguments]");
  if (words.no_python && (words.module || words.run_path)) refuse("--no-python cannot be had with -m or --run-path");
  if (!options.hosts.empty()) return;  // the rondorun there looks for it
  const bool is_script = command.front().ends_with(".py") && ::access(command.front().c_str(), X_OK) != 0;
  if (words.module)
    command.insert(command.begin(), {"python3", "-u", "-m"});
  else if (words.run_path || (is_script && !words.no_python))
    command.insert(command.begin(), {"python3", "-u"});
}

}  // namespace rondo::launcher
