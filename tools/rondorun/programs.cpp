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

std::vector<RankProgram> rank_programs(const Options& options, const Placement& at, Records& records) {
  std::vector<RankProgram> programs;
  for (int i = 0; i < at.local_size; ++i) programs.push_back(rank_program(options, at, at.first_rank + i, records));
  return programs;
}

RankProgram rank_program(const Options& options, Placement at, int rank, Records& records) {
  const int local_rank = rank - at.first_rank;
  ErrorFile error_file;
  Fd record = records.open(rank);
  at.error_file = error_file.path();
  at.record_fd = record.get();
  return {.rank = rank,
          .arguments = rank_arguments(options, local_rank),
          .environment = rank_environment(options, at, local_rank),
          .shown = is_shown(options, rank, local_rank),
          .replaces = !at.joins_as.empty(),
          .cpus = options.shares[static_cast<std::size_t>(local_rank)].cpus,
          .error_file = std::move(error_file),
          .record = std::move(record)};
}

}  // namespace rondo::launcher
