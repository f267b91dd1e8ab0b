// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/exit_status.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "comm/base/process_state.hpp"
#include "comm/base/system_error.hpp"

namespace rondo::process {

std::string signal_name(int signal) { return describe_signal(signal); }

std::string ExitStatus::describe() const { return describe_exit(code, signal); }

Fd open_pidfd(pid_t pid) {
  // Not through <sys/pidfd.h>: glibc 2.36 leaves out its extern "C".
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) throw_errno("cannot watch a child process");
  return pidfd;
}

std::optional<ExitStatus> try_reap(int pidfd) {
  siginfo_t info{};
  int result = 0;
  do result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG);
  while (result < 0 && errno == EINTR);
  if (result < 0) throw_errno("cannot wait for a child process");
  if (info.si_pid == 0) return std::nullopt;
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{.signal = info.si_status};
}

}  // namespace rondo::process
