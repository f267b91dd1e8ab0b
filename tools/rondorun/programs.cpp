// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace rondo::launcher {
namespace {

std::vector<std::string> rank_arguments(const Options& options, int local_rank) {
  if (options.local_rank_flag.empty()) return {};
  return {fmt::format("--{}={}", options.local_rank_flag, local_rank)};
}

bool is_shown(const Options& options, int rank, int local_rank) {
  const auto among = [](const std::vector<int>& all, int one) {
    return all.empty() || std::find(all.begin(), all.end(), one) != all.end();
  };
  return among(options.shown, rank) && among(options.shown_local, local_rank);
}

}  // namespace

std::vector<RankProgram> rank_programs(const Options& options, const Placement& placement, Records& records) {
  std::vector<RankProgram> programs;
  Placement at = placement;
  for (int i = 0; i < at.local_size; ++i) {
    const int rank = at.first_rank + i;
    ErrorFile error_file;
    Fd record = records.open(rank);
    at.error_file = error_file.path();
    at.record_fd = record.get();
    programs.push_back({.rank = rank,
                        .arguments = rank_arguments(options, i),
                        .environment = rank_environment(options, at, i),
                        .shown = is_shown(options, rank, i),
                        .cpus = options.shares[static_cast<std::size_t>(i)].cpus,
                        .error_file = std::move(error_file),
                        .record = std::move(record)});
  }
  return programs;
}

}  // namespace rondo::launcher
