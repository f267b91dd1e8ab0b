// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job are in at a moment, as rows for people and as JSON.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/rondo/read.hpp"

namespace rondo::records {

struct Row {
  int rank = 0;
  bool replaces = false;  // a lost process of this rank
  std::int64_t pid = 0;
  std::string host{};
  // "in call", "computing" (between calls), "stopped", "ended", or "silent": it has no communicator, or does not
  // answer.
  std::string state{};
  std::string how_it_ended{};           // "exited with code 3"
  std::optional<Call> call{};           // that it is in; else its last one
  std::string communicator{};           // of the call
  std::int64_t generation = 0;          // of that
  std::optional<double> since_us{};     // of the wall clock: when the call, or the time since it, began
  double now_us = 0;                    // when it said so
  std::optional<double> bytes_per_s{};  // of the calls that it remembers: 64 of each communicator, of 10 s at most
};
std::vector<Row> rows_of(const Folder& snapshot);

std::string heading_of(const Folder& snapshot);             // a line about the job, and when
std::vector<std::string> table_of(const Folder& snapshot);  // a heading, then a line for each rank
// Ranks that are in the same together: "ranks 0,1,3 in all_reduce of 1000 f32, sum, #4 of world, for 3.2 s".
std::vector<std::string> groups_of(const Folder& snapshot);
std::string live_json(const Folder& snapshot);  // one document, a line

}  // namespace rondo::records
