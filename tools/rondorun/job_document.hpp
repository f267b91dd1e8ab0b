// SPDX-License-Identifier: Apache-2.0
// What a launcher says of its ranks, as JSON: job.json of a failure, which rondo explain reads.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"

namespace rondo::launcher {

struct Account {
  std::chrono::system_clock::time_point happened;
  std::string sentence{};  // empty: nothing has failed
  int failed_rank = -1;
  std::vector<RankFacts> then{};  // when it happened; empty: it is now
  std::vector<RankFacts> now;
};
std::string job_document(const Options& options, const Placement& at, const Account& account);

}  // namespace rondo::launcher
