// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <sstream>

#include <rondo/error.hpp>

namespace rondo::launcher {
namespace {

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

// How long the nodes are waited for is node 0's affair where MIN to MAX come, and else each launcher's own.
constexpr std::array kTerms{
    Compared{"max-restarts", [](const Options& options) { return std::to_string(options.max_restarts); }},
    Compared{"rdzv-conf",
             [](const Options& options) {
               return is_elastic(options) ? "last_call_timeout of " + seconds_text(options.last_call) : "";
             }},
    Compared{"join-timeout",
             [](const Options& options) { return is_elastic(options) ? seconds_text(options.join_timeout) : ""; }},
    Compared{"link-patience", [](const Options& options) { return seconds_text(options.link_patience); }},
    Compared{"continue-on-failure",
             [](const Options& options) { return std::string(options.continue_on_failure ? "given" : "not given"); }}};

// What a job is called on purpose is one job, whatever its nodes run.
std::string job_text(const Options& options) {
  if (options.job_is_given) return nodes_text(options) + " nodes";
  const std::string last =
      options.local_rank_flag.empty() ? "" : fmt::format(" --{}=LOCAL_RANK", options.local_rank_flag);
  return fmt::format("{} nodes that run '{}{}'", nodes_text(options), fmt::join(options.command, " "), last);
}

[[noreturn]] void mismatch(const std::string& sentence) { throw Error(ErrorCode::mismatch, sentence); }

}  // namespace

std::string nodes_text(const Options& options) {
  return is_elastic(options) ? fmt::format("{} to {}", options.least_nodes, options.nodes)
                             : std::to_string(options.nodes);
}

std::span<const Compared> compared() { return kTerms; }

// The command comes last, as it may have lines.
std::string terms_of(const Options& options, const std::string& who) {
  std::string text = fmt::format("{}\n{}\n", who, RONDO_VERSION);
  for (const Compared& row : kTerms) text += row.value(options) + "\n";
  return text + job_text(options);
}

void compare_terms(const std::string& theirs, const Options& options, const std::string& place) {
  std::istringstream lines(theirs);
  std::string who, release, job;
  std::getline(lines, who);
  std::getline(lines, release);
  if (release != RONDO_VERSION)
    mismatch(
        fmt::format("the launcher of node 0 on {} is rondorun {}, and this one is {}: install the same on every "
                    "host",
                    who, release, RONDO_VERSION));
  std::array<std::string, kTerms.size()> values;
  for (std::string& value : values) std::getline(lines, value);
  std::getline(lines, job, '\0');
  if (const std::string own = job_text(options); job != own)
    mismatch(
        fmt::format("another job meets at {}: the launcher on {} makes a world of {}, this one of {}; give each "
                    "job a --master-port or a --rdzv-id of its own",
                    place, who, job, own));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string own = kTerms[i].value(options);
    if (values[i] == own) continue;
    mismatch(fmt::format("--{} differs: {} at node 0, on {}, and {} here; give it alike on every node", kTerms[i].flag,
                         values[i], who, own));
  }
}

}  // namespace rondo::launcher
