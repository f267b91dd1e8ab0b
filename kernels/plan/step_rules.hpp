// SPDX-License-Identifier: Apache-2.0
// What can be said of a step before it runs: its peers, places and sizes, and whether its Moves race.
#pragma once
#include "kernels/plan/value_rules.hpp"

namespace rondo::kernels {

// False: the step cannot be run at all.
bool check_step(const Plan& plan, const PlanStep& step, const SymbolicMemory& memory, Where where, Findings& findings);

}  // namespace rondo::kernels
