// SPDX-License-Identifier: Apache-2.0
// What runs as each rank of this node: arguments, environment, cores, and what it may leave for a failure.
#pragma once
#include <vector>

#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/records.hpp"

namespace rondo::launcher {

std::vector<RankProgram> rank_programs(const Options& options, const Placement& at, Records& records);
RankProgram rank_program(const Options& options, Placement at, int rank, Records& records);  // one of them

}  // namespace rondo::launcher
