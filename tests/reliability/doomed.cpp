// SPDX-License-Identifier: Apache-2.0
// doomed PHASE CALL PROGRAM [ARGUMENT...]: runs a program and kills it, by SIGKILL, at a moment of a phase that it
// marks (moments.hpp). A moment is where one of its threads enters a system call, or comes out of it; CALL counts them,
// of all threads, from 1. 0: it is not killed, and they are counted. Where the phase has fewer, it is killed where the
// phase ends. PHASE -1: from the start. `doomed` alone: whether one may trace here.
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/reliability/moments.hpp"
#include "tests/support/spoken.hpp"

namespace {

using namespace rondo::test;

[[noreturn]] void cannot(const char* what) {
  say(fmt::format("cannot {}: {}", what, std::strerror(errno)));
  std::_Exit(3);
}

[[noreturn]] void be_traced(char** command) {
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) cannot("be traced");
  ::raise(SIGSTOP);
  if (command == nullptr) std::_Exit(0);
  ::execvp(command[0], command);
  std::_Exit(125);
}

class Doom {
 public:
  Doom(int phase, unsigned long call, char** command) : phase_(phase), call_(call), inside_(phase == kEveryCall) {
    child_ = ::fork();
    if (child_ < 0) cannot("fork");
    if (child_ == 0) be_traced(command);
    int status = 0;
    ::waitpid(child_, &status, 0);
    if (!WIFSTOPPED(status)) std::_Exit(3);  // it has said why
    known_.insert(child_);
    std::signal(SIGTERM, SIG_IGN);  // which the traced program gets as well; its end is this one's
    const long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    if (::ptrace(PTRACE_SETOPTIONS, child_, nullptr, options) != 0) cannot("trace");
    go_on(child_, 0);
  }
  int run() {
    for (int status = 0;;) {
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0) cannot("wait");
      if (WIFSTOPPED(status)) {
        stopped(thread, status);
      } else if (thread == child_) {
        return ended(status);
      }
    }
  }

 private:
  static void go_on(pid_t thread, long signal) { ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal); }

  void stopped(pid_t thread, int status) {
    const int signal = WSTOPSIG(status);
    const bool is_new = known_.insert(thread).second, of_tracing = status >> 16 != 0 || (is_new && signal == SIGSTOP);
    const bool at_call = signal == (SIGTRAP | 0x80);
    if (at_call) look_at(thread);
    go_on(thread, at_call || of_tracing ? 0 : signal);  // after SIGKILL it is not there any more
  }
  void look_at(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;
    const bool enters = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (enters) {
      number_ = info.entry.nr;
      if (number_ == SYS_getpriority && static_cast<long>(info.entry.args[0]) == kMark)
        return begin(static_cast<int>(info.entry.args[1]));
    }
    if (!inside_ || over_) return;
    ++count_;
    if (call_ != 0 && count_ == call_) kill(enters ? "enters" : "leaves");
  }
  void begin(int phase) {
    if (phase_ == kEveryCall) return;
    if (inside_ && call_ != 0 && !over_) kill("ends the phase with");
    over_ = over_ || inside_;
    inside_ = phase == phase_;
  }
  void kill(const char* where) {
    const auto at_us = now_us();
    ::kill(child_, SIGKILL);
    over_ = true;
    say(fmt::format("killed {} at {}: {} {}", at_us, count_, where, number_));
  }
  int ended(int status) {
    say(fmt::format("moments {}", count_));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  const int phase_;
  const unsigned long call_;
  bool inside_, over_ = false;
  unsigned long count_ = 0;
  unsigned long long number_ = 0;  // of the call last entered
  pid_t child_ = -1;
  std::set<pid_t> known_;
};

}  // namespace

int main(int count, char** words) {
  if (count == 1) return Doom(kEveryCall, 0, nullptr).run();
  if (count < 4) return 2;
  return Doom(std::atoi(words[1]), std::strtoul(words[2], nullptr, 10), words + 3).run();
}
