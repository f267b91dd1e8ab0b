// SPDX-License-Identifier: Apache-2.0
// doomed PHASE CALL PROGRAM [ARGUMENT...]: runs a program and kills it, by SIGKILL, at a moment of a phase that it
// marks (moments.hpp). A moment is where one of its threads enters a system call, or comes out of it; CALL counts them,
// of all threads, from 1. 0: it is not killed, and they are counted. Where the phase has fewer, it is killed where the
// phase ends. PHASE -1: from the start; -2: of its first child, -3: of that one's. Who is born below is not
// traced. `doomed` alone: whether one may trace here.
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
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
  Doom(int phase, unsigned long call, char** command)
      : phase_(phase), call_(call), inside_(phase <= kEveryCall), depth_(inside_ ? kEveryCall - phase : 0) {
    child_ = ::fork();
    if (child_ < 0) cannot("fork");
    if (child_ == 0) be_traced(command);
    int status = 0;
    ::waitpid(child_, &status, 0);
    if (!WIFSTOPPED(status)) std::_Exit(3);  // it has said why
    depths_[child_] = 0;
    begun_.insert(child_);
    if (depth_ == 0) victim_ = child_;
    std::signal(SIGTERM, SIG_IGN);  // which the traced program gets as well; its end is this one's
    long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    if (depth_ > 0) options |= PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
    if (::ptrace(PTRACE_SETOPTIONS, child_, nullptr, options) != 0) cannot("trace");
    go_on(child_, 0);
  }
  int run() {
    for (int status = 0, of_child = 0;;) {  // until nobody is left
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0 && errno == ECHILD) return ended(of_child);
      if (thread < 0) cannot("wait");
      if (WIFSTOPPED(status)) {
        stopped(thread, status);
        continue;
      }
      depths_.erase(thread);
      begun_.erase(thread);
      if (thread == child_) of_child = status;
    }
  }

 private:
  // Of the victim's threads each call is a stop. After SIGKILL the thread is not there any more.
  void go_on(pid_t thread, long signal) {
    const bool of_victim = depths_[thread] == depth_;
    ::ptrace(of_victim ? PTRACE_SYSCALL : PTRACE_CONT, thread, nullptr, signal);
  }
  // Who is new stops once, before or after whoever made it says so.
  void begin_thread(pid_t thread) {
    begun_.insert(thread);
    if (depths_[thread] <= depth_) return go_on(thread, 0);
    depths_.erase(thread);
    begun_.erase(thread);
    ::ptrace(PTRACE_DETACH, thread, nullptr, 0);
  }
  void note_birth(pid_t parent, bool is_thread) {
    unsigned long child = 0;
    if (::ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &child) != 0) return;
    const auto born = static_cast<pid_t>(child);
    int depth = depths_[parent] + (is_thread ? 0 : 1);
    if (!is_thread && depth == depth_ && victim_ >= 0) ++depth;  // the first child is the victim
    if (!is_thread && depth == depth_) victim_ = born;
    depths_[born] = depth;
    if (early_.erase(born) > 0) begin_thread(born);
  }
  void stopped(pid_t thread, int status) {
    const int signal = WSTOPSIG(status), event = status >> 16;
    if (!depths_.contains(thread)) return void(early_.insert(thread));
    if (!begun_.contains(thread)) return begin_thread(thread);
    if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
      note_birth(thread, event == PTRACE_EVENT_CLONE);
    const bool at_call = signal == (SIGTRAP | 0x80);
    if (at_call) look_at(thread);
    go_on(thread, at_call || event != 0 ? 0 : signal);
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
    if (phase_ <= kEveryCall) return;
    if (inside_ && call_ != 0 && !over_) kill("ends the phase with");
    over_ = over_ || inside_;
    inside_ = phase == phase_;
  }
  void kill(const char* where) {
    const auto at_us = now_us();
    ::kill(victim_, SIGKILL);
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
  const int depth_;  // of the victim below the program
  unsigned long count_ = 0;
  unsigned long long number_ = 0;  // of the call last entered
  pid_t child_ = -1, victim_ = -1;
  std::map<pid_t, int> depths_;    // of all threads
  std::set<pid_t> begun_, early_;  // those that go, and those of whom nobody has said yet whose they are
};

}  // namespace

int main(int count, char** words) {
  if (count == 1) return Doom(kEveryCall, 0, nullptr).run();
  if (count < 4) return 2;
  return Doom(std::atoi(words[1]), std::strtoul(words[2], nullptr, 10), words + 3).run();
}
