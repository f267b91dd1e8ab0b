// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/supervised.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "comm/base/system_error.hpp"
#include "runtime/process/child.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/exit_status.hpp"
#include "runtime/process/title.hpp"

namespace rondo::process {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kCleanUpLimit{5};
constexpr std::chrono::seconds kSupervisorLimit{7};  // to do so, when the launcher is gone
constexpr const char* kWitnessTitle = "job-witness";

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

struct Pipe {
  Fd reader, writer;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  return {.reader = Fd(ends[0]), .writer = Fd(ends[1])};
}

// Of writes to a witness, or a reader of our words, that was gone.
void forget_broken_pipes() {
  sigset_t broken;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  constexpr timespec kNow{};
  while (::sigtimedwait(&broken, nullptr, &kNow) > 0) continue;
}

void pass_on(int control, int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(control, &byte, 1);  // EPIPE: it has just ended
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

// `body` in a child with a session of its own, where all signals are blocked and all orphans of its descent arrive:
// kill -9 to another's process group, and the terminal's own signals, do not reach it.
Child fork_guardian(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot fork");
  if (pid != 0) return {.pid = pid, .pidfd = open_pidfd(pid)};
  const int code = code_of([&] {
    const sigset_t blocked = blocked_signals();
    ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    ::setsid();
    become_subreaper();
    return body();
  });
  code_of([] { return kill_descent(Clock::now() + kCleanUpLimit) ? 0 : 1; });
  std::fflush(nullptr);
  ::_exit(code);
}

int exit_code_of(const ExitStatus& status, const char* who, pid_t pid) {
  if (status.signal != 0)
    std::fprintf(stderr, "rondo: the %s of the job (pid %d) %s; the job was stopped\n", who, pid,
                 status.describe().c_str());
  return status.shell_code();
}

// Who started it hears nothing else from us. Nobody is kept for a reader that does not read.
void say_launcher_is_gone(pid_t launcher) {
  const std::string line =
      "rondo: the launcher of the job (pid " + std::to_string(launcher) + ") is gone; the job was stopped\n";
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&err, 1, 0) != 1 || (err.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Hands on what the launcher says, and its end, until the supervisor has ended.
int stand_by(Fd from_launcher, Fd to_supervisor, const Child& supervisor, pid_t launcher) {
  auto until = Clock::time_point::max();
  for (;;) {
    if (const auto status = try_reap(supervisor.pidfd.get())) {
      if (!from_launcher) say_launcher_is_gone(launcher);
      return exit_code_of(*status, "supervisor", supervisor.pid);
    }
    if (Clock::now() >= until) return 128 + SIGKILL;
    std::array<pollfd, 2> ends{pollfd{supervisor.pidfd.get(), POLLIN, 0}, pollfd{from_launcher.get(), POLLIN, 0}};
    constexpr int kLookEveryMs = 100;  // once the launcher is gone
    ::poll(ends.data(), ends.size(), from_launcher ? -1 : kLookEveryMs);
    if (ends[1].revents == 0) continue;
    unsigned char signal = 0;
    if (::read(from_launcher.get(), &signal, 1) == 1) {
      [[maybe_unused]] const auto written = ::write(to_supervisor.get(), &signal, 1);
    } else {
      until = Clock::now() + kSupervisorLimit;
      from_launcher.reset();
      to_supervisor.reset();
    }
  }
}

int witness(Fd from_launcher, Supervision& supervision, const std::function<int(Supervision&)>& job) {
  set_title(kWitnessTitle);
  Pipe pipe = make_pipe();
  supervision.control = std::move(pipe.reader);
  const Child supervisor = fork_guardian([&] {
    pipe.writer.reset();
    from_launcher.reset();
    reset_title();
    return job(supervision);
  });
  supervision.control.reset();
  return stand_by(std::move(from_launcher), std::move(pipe.writer), supervisor, supervision.launcher);
}

int wait_and_forward(const Child& child, int control, const sigset_t& waited_for) {
  for (;;) {
    if (const auto status = try_reap(child.pidfd.get())) return exit_code_of(*status, "witness", child.pid);
    const int signal = ::sigwaitinfo(&waited_for, nullptr);
    if (signal > 0 && signal != SIGCHLD && signal != SIGPIPE) pass_on(control, signal);
  }
}

}  // namespace

int run_supervised(Launcher launcher, const std::function<int(Supervision&)>& job) {
  Pipe pipe = make_pipe();
  Supervision supervision{.control = {}, .original_mask = {}, .launcher = ::getpid()};
  sigset_t waited_for = forwarded_signals(launcher);
  sigaddset(&waited_for, SIGCHLD);
  sigaddset(&waited_for, SIGPIPE);  // or the witness' end might be ours before we have cleaned up
  ::pthread_sigmask(SIG_BLOCK, &waited_for, &supervision.original_mask);
  if (launcher == Launcher::whole_process) become_subreaper();
  const Child child = fork_guardian([&] {
    pipe.writer.reset();
    return witness(std::move(pipe.reader), supervision, job);
  });
  pipe.reader.reset();
  const int code = wait_and_forward(child, pipe.writer.get(), waited_for);
  // Something is left only when the witness was killed.
  if (launcher == Launcher::whole_process) kill_descent(Clock::now() + kCleanUpLimit);
  forget_broken_pipes();
  ::pthread_sigmask(SIG_SETMASK, &supervision.original_mask, nullptr);
  return code;
}

}  // namespace rondo::process
