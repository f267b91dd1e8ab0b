// SPDX-License-Identifier: Apache-2.0
// One rondorun on each of --hosts, started from here by ssh.
#pragma once
#include "runtime/process/supervised.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

// In the supervisor process. Returns the exit code: that of the job, as all of the far launchers have it.
int launch_over_ssh(const Options& options, process::Supervision& supervision);

}  // namespace rondo::launcher
