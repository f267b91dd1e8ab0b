// SPDX-License-Identifier: Apache-2.0
// One run of a job on this node, from the first rank's start to the last one's end.
#pragma once
#include "runtime/process/supervised.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

// In the supervisor process. Returns the exit code.
int launch(const Options& options, process::Supervision& supervision);

}  // namespace rondo::launcher
