// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/supervised.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>

#include "comm/base/system_error.hpp"
#include "runtime/process/child.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/exit_status.hpp"

namespace rondo::process {
namespace {

constexpr std::chrono::seconds kCleanUpLimit{5};

// What the launcher passes on. A signal that was ignored when we started (SIGHUP under nohup) stays ignored. SIGWINCH
// is for those that serve a terminal: a guest's process may want it itself.
sigset_t forwarded_signals(Launcher launcher) {
  sigset_t set;
  sigemptyset(&set);
  if (launcher == Launcher::whole_process) sigaddset(&set, SIGWINCH);
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

// Everything but what reports a bug of our own.
sigset_t blocked_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&set, signal);
  return set;
}

void pass_on(int control, int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(control, &byte, 1);  // EPIPE: it has just ended
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

int supervise(Supervision& supervision, const std::function<int(Supervision&)>& job) {
  int code = 1;
  try {
    become_subreaper();
    code = job(supervision);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo: %s\n", error.what());
  }
  kill_descent(std::chrono::steady_clock::now() + kCleanUpLimit);
  std::fflush(nullptr);
  return code;
}

Child fork_supervisor(Supervision& supervision, Fd& writer, const std::function<int(Supervision&)>& job) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot fork");
  if (pid == 0) {
    writer.reset();
    const sigset_t blocked = blocked_signals();
    ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    ::setsid();  // kill -9 to the launcher's process group, and the terminal's own signals, do not reach the job
    ::_exit(supervise(supervision, job));
  }
  return {.pid = pid, .pidfd = open_pidfd(pid)};
}

int wait_and_forward(const Child& supervisor, int control, const sigset_t& waited_for) {
  for (;;) {
    if (const auto status = try_reap(supervisor.pidfd.get())) {
      if (status->signal != 0)
        std::fprintf(stderr, "rondo: the supervisor of the job (pid %d) %s; the job was stopped\n", supervisor.pid,
                     status->describe().c_str());
      return status->shell_code();
    }
    const int signal = ::sigwaitinfo(&waited_for, nullptr);
    if (signal > 0 && signal != SIGCHLD) pass_on(control, signal);
  }
}

}  // namespace

int run_supervised(Launcher launcher, const std::function<int(Supervision&)>& job) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  Supervision supervision{.control = Fd(ends[0]), .original_mask = {}};
  Fd writer(ends[1]);
  sigset_t waited_for = forwarded_signals(launcher);
  sigaddset(&waited_for, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &waited_for, &supervision.original_mask);
  if (launcher == Launcher::whole_process) become_subreaper();
  const Child supervisor = fork_supervisor(supervision, writer, job);
  supervision.control.reset();
  const int code = wait_and_forward(supervisor, writer.get(), waited_for);
  // Something is left only when the supervisor was killed.
  if (launcher == Launcher::whole_process) kill_descent(std::chrono::steady_clock::now() + kCleanUpLimit);
  ::pthread_sigmask(SIG_SETMASK, &supervision.original_mask, nullptr);
  return code;
}

}  // namespace rondo::process
