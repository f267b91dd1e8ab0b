// SPDX-License-Identifier: Apache-2.0
// A job in two processes, so that it ends even when the one its user sees is killed with SIGKILL: the launcher, which
// only passes signals on and waits, and below it the supervisor, which does the work and is the ancestor of
// everything the job starts. Either one notices the end of the other and kills the whole descent.
#pragma once
#include <csignal>

#include <functional>
#include <memory>

#include "comm/base/fd.hpp"

namespace rondo::process {

struct Supervision {
  Fd control;              // one byte per signal the launcher got; end of file: the launcher is gone
  sigset_t original_mask;  // of signals, for the job's processes
  // What the job leaves here ends with the process, undestroyed: threads of it may be waiting for other hosts.
  std::shared_ptr<void> until_exit{};
};

// whole_process: this process is there for the job alone, so all that is below it ends with the job, also when the
// supervisor was killed. guest: it has other children, which stay untouched.
enum class Launcher { whole_process, guest };

// Runs `job` in a supervisor process with a session of its own and returns what it returns. All signals are blocked
// there. Call it before any thread is started.
int run_supervised(Launcher launcher, const std::function<int(Supervision&)>& job);

}  // namespace rondo::process
