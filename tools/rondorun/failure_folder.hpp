// SPDX-License-Identifier: Apache-2.0
// A folder of its own for each failure, for this user alone, which rondo explain reads: job.json of the launcher, and
// rank<r>.json of each rank that has said what it did.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/records.hpp"

namespace rondo::launcher {

// Bounds: of a rank's file comm::kMostRecordBytes, of all in a folder, and of such folders in one place.
inline constexpr std::size_t kMostFolderBytes = std::size_t{64} << 20, kMostFolders = 100;

// What happened, of one node.
struct FailureReport {
  std::string sentence;  // empty: nothing failed, somebody asked
  int rank = -1;         // that failed; -1: of another node, or none
  Placement at;
  std::vector<RankFacts> when_it_happened, now;  // of the same ranks
  std::chrono::system_clock::time_point happened;
};

// Throws Error(system), and leaves what has been written. Returns the folder's path.
std::filesystem::path write_failure_folder(const Options& options, const FailureReport& report, const Records& records);

}  // namespace rondo::launcher
