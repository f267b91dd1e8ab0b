// SPDX-License-Identifier: Apache-2.0
// How a process ended.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "comm/base/fd.hpp"

namespace rondo::process {

struct ExitStatus {
  int code = 0;    // given to exit(); 0 when a signal killed it
  int signal = 0;  // that killed it; 0 when it exited
  bool ok() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  std::string describe() const;  // "exited with code 3", "was killed by signal 9 (Killed)"
};

std::string signal_name(int signal);  // "signal 9 (Killed)"

// Of a child not reaped yet; readable once it has ended.
Fd open_pidfd(pid_t pid);

// Reaps the child behind `pidfd`; nullopt while it runs.
std::optional<ExitStatus> try_reap(int pidfd);

}  // namespace rondo::process
