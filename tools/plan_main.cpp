// SPDX-License-Identifier: Apache-2.0
// rondo-plan: what every rank does in a collective, whether that is right, and what it costs.
// Exit status: 0 the plan is right, 1 it is not, 2 the flags are wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include <rondo/dtype.hpp>

#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "kernels/algorithms/tuner.hpp"
#include "kernels/plan/verifier.hpp"

namespace {

using namespace rondo::kernels;

constexpr std::size_t kMostElements = std::size_t{1} << 26;  // of all ranks together, at 24 bytes each to verify
constexpr std::size_t kMostSlices = std::size_t{1} << 20;
constexpr std::size_t kShownSteps = 64;  // per rank, unless --all

struct Flags {
  std::string collective = "all_reduce", algorithm, dtype = "f32";
  int ranks = 4, root = 0, rank = kNobody;
  std::size_t count = 1024;
  LinkLayout layout{.slice = 16384, .slices_per_chunk = 2, .slots = 4};
  bool in_place = false, all = false, list = false, canonical = false;
};

[[noreturn]] void refuse(const std::string& sentence) {
  rondo::complain("rondo-plan", fmt::format("{} (--help lists the flags)", sentence));
  std::exit(2);
}

// 512, 64K, 1M, 2G: powers of 1024.
std::size_t parse_count(const std::string& flag, const std::string& value) {
  std::size_t digits = 0;
  std::size_t count = 0;
  while (digits < value.size() && value[digits] >= '0' && value[digits] <= '9' && digits < 18) {
    count = 10 * count + static_cast<std::size_t>(value[digits++] - '0');
  }
  const std::string unit = value.substr(digits);
  const std::size_t power = std::string(" KMG").find(unit.empty() ? " " : unit);
  if (digits == 0 || unit.size() > 1 || power == std::string::npos) {
    refuse(fmt::format("{} {}: expected a number such as 512, 64K or 1M", flag, value));
  }
  if (count > (std::numeric_limits<std::size_t>::max() >> (10 * power))) {
    refuse(fmt::format("{} {}: that is more than a number of 64 bits", flag, value));
  }
  return count << (10 * power);
}

Flags parse(int argc, char** argv) {
  Flags flags;
  CLI::App app("Prints, verifies and prices the plan of a collective.");
  const auto sized = [&](const char* name, std::size_t& target, const char* help) {
    app.add_option_function<std::string>(
        name, [&target, name](const std::string& v) { target = parse_count(name, v); }, help);
  };
  app.add_flag("--list", flags.list, "list the algorithms and what they promise");
  app.add_option("--collective", flags.collective, "all_reduce, broadcast, ... (see --list)");
  app.add_option("--algorithm", flags.algorithm, "default: what the tuner takes for this size");
  app.add_flag("--reproducible", flags.canonical, "let the tuner take an algorithm in canonical order");
  app.add_option("--ranks", flags.ranks, "world size")->check(CLI::Range(1, kMaxPlannedRanks));
  sized("--count", flags.count, "elements of the message, or of one rank's block; 64K, 1M");
  app.add_option("--dtype", flags.dtype, "for bytes");
  app.add_option("--root", flags.root, "root of a rooted collective")->check(CLI::Range(0, kMaxPlannedRanks - 1));
  app.add_flag("--in-place", flags.in_place, "input and output share memory");
  sized("--slice", flags.layout.slice, "elements of a FIFO slot");
  app.add_option("--slices-per-chunk", flags.layout.slices_per_chunk)->check(CLI::Range(1, 1 << 20));
  app.add_option("--slots", flags.layout.slots, "FIFO slots of a link")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rank", flags.rank, "print this rank's steps only")->check(CLI::Range(0, kMaxPlannedRanks - 1));
  app.add_flag("--all", flags.all, fmt::format("print all steps, not the first {} of a rank", kShownSteps));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
  if (flags.layout.slice == 0) refuse("--slice 0: a slice has at least one element");
  if (flags.root >= flags.ranks) refuse(fmt::format("--root {} is not a rank", flags.root));
  if (flags.rank >= flags.ranks) {
    refuse(fmt::format("--rank {} is not a rank: there are {}", flags.rank, flags.ranks));
  }
  return flags;
}

Pattern find_pattern(const std::string& name) {
  for (const PatternRow& row : kPatterns) {
    if (row.name == name) return row.pattern;
  }
  refuse(fmt::format("--collective {}: there is no such collective", name));
}

std::size_t element_bytes(const std::string& name) {
  for (int i = 0; i < rondo::kDataTypeCount; ++i) {
    const auto dtype = static_cast<rondo::DataType>(i);
    if (rondo::name_of(dtype) == name) return rondo::size_of(dtype);
  }
  refuse(fmt::format("--dtype {}: there is no such type", name));
}

void list_algorithms() {
  fmt::print("{:<16}{:<20}{:<12}{}\n", "collective", "algorithm", "bits", "counts");
  for (int id = 0; id < kAlgorithmCount; ++id) {
    const AlgorithmRow& row = algorithm_row(id);
    fmt::print("{:<16}{:<20}{:<12}{}\n", row_of(row.pattern).name, row.name, row.canonical_order ? "canonical" : "same",
               row.variable_counts ? "variable" : "equal");
  }
  fmt::print(
      "bits: same on all ranks and every time, or canonical (whatever the algorithm); counts of the ranks' blocks\n");
}

int pick_algorithm(const Flags& flags, const Problem& problem, std::size_t bytes_per_element) {
  if (!flags.algorithm.empty()) {
    const int id = find_algorithm(problem.pattern, flags.algorithm);
    if (id == kNoAlgorithm) {
      refuse(fmt::format("--algorithm {}: {} has no such algorithm; see --list", flags.algorithm, flags.collective));
    }
    return id;
  }
  const RankBlocks blocks = blocks_of(problem, problem.root);
  const Work work = work_of(problem, problem.root, blocks);
  const std::size_t count = std::max(input_count(problem, work), output_count(problem, work));
  return choose_algorithm(problem.pattern, count * bytes_per_element, problem.size, flags.canonical);
}

void print_steps(const Plan& plan, const Flags& flags) {
  for (int rank = 0; rank < plan.problem.size; ++rank) {
    if (flags.rank != kNobody && flags.rank != rank) continue;
    const auto& steps = plan.ranks[static_cast<std::size_t>(rank)];
    const std::size_t shown = flags.all ? steps.size() : std::min(steps.size(), kShownSteps);
    fmt::print("rank {}\n", rank);
    for (std::size_t i = 0; i < shown; ++i) fmt::print("{:6}  {}\n", i, describe(steps[i]));
    if (shown < steps.size()) fmt::print("        ... {} more (--all)\n", steps.size() - shown);
  }
}

void print_cost(const Plan& plan, std::size_t bytes_per_element) {
  const PlanCost cost = cost_of(plan);
  fmt::print("{:>6}{:>10}{:>16}{:>16}{:>14}\n", "rank", "steps", "sent bytes", "received", "FIFO steps");
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    fmt::print("{:>6}{:>10}{:>16}{:>16}{:>14}\n", rank, cost.steps[rank], cost.sent[rank].elements * bytes_per_element,
               cost.received[rank].elements * bytes_per_element, cost.sent[rank].fifo_steps);
  }
  fmt::print("{:>10}{:>16}{:>14}\n", "link", "bytes", "FIFO steps");
  for (std::size_t from = 0; from < plan.ranks.size(); ++from) {
    for (std::size_t to = 0; to < plan.ranks.size(); ++to) {
      const Traffic& traffic = cost.links[from][to];
      if (traffic.elements == 0) continue;
      fmt::print("{:>10}{:>16}{:>14}\n", fmt::format("{} -> {}", from, to), traffic.elements * bytes_per_element,
                 traffic.fifo_steps);
    }
  }
}

int print_verdict(const Plan& plan) {
  const std::vector<Finding> findings = verify(plan);
  for (const Finding& finding : findings) fmt::print("WRONG ({}): {}\n", name_of(finding.fault), finding.sentence);
  if (findings.empty()) fmt::print("verified: every output is right, nothing waits for ever, nothing is left over\n");
  return findings.empty() ? 0 : 1;
}

// A plan is written out and run on symbols, so it has to fit here.
void refuse_huge(const Problem& problem, const LinkLayout& layout) {
  std::size_t elements = 0;
  for (int rank = 0; rank < problem.size; ++rank) {
    const RankBlocks blocks = blocks_of(problem, rank);
    const Work work = work_of(problem, rank, blocks);
    elements += input_count(problem, work) + output_count(problem, work);
  }
  if (problem.count > kMostElements || elements > kMostElements || elements / layout.slice > kMostSlices) {
    refuse(fmt::format("--count {}: {} ranks then hold more than {} elements, or {} slices of them; take a smaller one",
                       problem.count, problem.size, kMostElements, kMostSlices));
  }
}

int run(const Flags& flags) {
  if (flags.list) {
    list_algorithms();
    return 0;
  }
  const Problem problem{.pattern = find_pattern(flags.collective),
                        .size = flags.ranks,
                        .root = flags.root,
                        .count = flags.count,
                        .in_place = flags.in_place};
  const std::size_t bytes = element_bytes(flags.dtype);
  refuse_huge(problem, flags.layout);
  const Plan plan = record(pick_algorithm(flags, problem, bytes), problem, flags.layout);
  fmt::print("{} by {}: {} ranks, count {} of {}, slices of {}, {} to a chunk, {} slots a link, scratch {}\n",
             flags.collective, algorithm_row(plan.algorithm).name, flags.ranks, flags.count, flags.dtype,
             flags.layout.slice, flags.layout.slices_per_chunk, flags.layout.slots, plan.scratch_count);
  print_steps(plan, flags);
  print_cost(plan, bytes);
  return print_verdict(plan);
}

}  // namespace

int main(int argc, char** argv) {
  rondo::open_missing_streams();
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    rondo::complain("rondo-plan", error.what());
    return 1;
  }
}
