// SPDX-License-Identifier: Apache-2.0
// A folder of its own for each failure, or when a user asks for it, for this user alone, which rondo explain reads:
// job.json of the launcher, and rank<r>.json of each rank that has said what it did.
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/records.hpp"

namespace rondo::launcher {

// Bounds: of a rank's file comm::kMostRecordBytes, of all in a folder, and of such folders in one place.
inline constexpr std::size_t kMostFolderBytes = std::size_t{64} << 20, kMostFolders = 100;

// Of one start of the ranks. Each failure that survivors leave behind has a folder.
class FailureFolder {
 public:
  FailureFolder(const Options& options, Placement at, Records& records)
      : options_(options), at_(std::move(at)), records_(records) {}
  void look(const Ranks& ranks);  // something has failed: those that run are asked what they are in
  // Of what was looked at: returns a sentence about the folder, also where it could not be written; empty: there is
  // nothing to leave.
  std::string leave(const Failure& failure, const Ranks& ranks);
  // The same, of a job that goes on.
  std::string leave_while_running(const Ranks& ranks, const Records::Answers& answers) const;

 private:
  struct Look {
    std::chrono::system_clock::time_point happened;
    std::vector<RankFacts> when_it_happened;
    Records::Time asked;
  };
  std::string write(std::chrono::system_clock::time_point happened, const std::string& job,
                    const Records::Answers& records, const std::string& about) const;

  const Options& options_;
  Placement at_;
  Records& records_;
  std::optional<Look> look_;
};

}  // namespace rondo::launcher
