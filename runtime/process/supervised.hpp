// SPDX-License-Identifier: Apache-2.0
// A job in three processes, each the parent of the next, so that it ends with all that it started even when two of them
// are killed with SIGKILL: the launcher, which the user sees and which only passes signals on and waits; the witness,
// which has a name of its own, as who kills by name kills all that bear it; and the supervisor, which does the work and
// is the ancestor of everything the job starts. Each notices the end of another and kills the whole descent.
#pragma once
#include <csignal>

#include <functional>
#include <memory>

#include "comm/base/fd.hpp"

namespace rondo::process {

struct Supervision {
  Fd control;              // one byte per signal the launcher got; end of file: it or the witness is gone
  sigset_t original_mask;  // of signals, for the job's processes
  pid_t launcher = 0;      // the process that the user sees
  // What the job leaves here ends with the process, undestroyed: threads of it may be waiting for other hosts.
  std::shared_ptr<void> until_exit{};
};

// whole_process: this process is there for the job alone, so all that is below it ends with the job, also when the
// witness was killed. guest: it has other children, which stay untouched.
enum class Launcher { whole_process, guest };

// Runs `job` in a supervisor process with a session of its own and returns what it returns. All signals are blocked
// there. Call it before any thread is started.
int run_supervised(Launcher launcher, const std::function<int(Supervision&)>& job);

}  // namespace rondo::process
