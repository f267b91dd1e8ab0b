// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/descent.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "comm/base/process_state.hpp"
#include "comm/base/system_error.hpp"

namespace rondo::process {
namespace {

using std::chrono::steady_clock;

std::vector<pid_t> numbered_entries(const std::string& folder) {
  std::vector<pid_t> result;
  std::error_code gone;  // the process may end while we look
  for (std::filesystem::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc{}) result.push_back(pid);
  }
  return result;
}

void append_children(pid_t pid, std::vector<pid_t>& result) {
  const auto tasks = fmt::format("/proc/{}/task", pid);
  for (const pid_t task : numbered_entries(tasks)) {
    std::ifstream children(fmt::format("{}/{}/children", tasks, task));
    for (pid_t child = 0; children >> child;) result.push_back(child);
  }
}

bool reap_all() {  // true: no child is left
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) return false;
    if (pid < 0 && errno != EINTR) return true;
  }
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw_errno("cannot adopt orphaned descendants");
}

std::vector<pid_t> descendants() {
  if (::access("/proc/thread-self/children", R_OK) != 0) return descendants_by_scan();
  std::vector<pid_t> result{::getpid()};
  for (std::size_t i = 0; i < result.size(); ++i) append_children(result[i], result);
  result.erase(result.begin());
  return result;
}

std::vector<pid_t> descendants_by_scan() {
  struct Process {
    pid_t pid, parent;
  };
  std::vector<Process> processes;
  for (const pid_t pid : numbered_entries("/proc")) {
    if (const auto process = read_process(pid)) processes.push_back({pid, process->parent});
  }
  std::vector<pid_t> result{::getpid()};
  for (std::size_t i = 0; i < result.size(); ++i) {
    const pid_t parent = result[i];
    for (const auto& one : processes)
      if (one.parent == parent) result.push_back(one.pid);
  }
  result.erase(result.begin());
  return result;
}

bool end_descent(steady_clock::time_point patience_ends, steady_clock::time_point deadline) {
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  // A process that forks while it is killed leaves a child to us, and its own end, reported after that, wakes us.
  for (std::set<pid_t> told;;) {
    const auto now = steady_clock::now();
    const bool patient = now < patience_ends;
    for (const pid_t pid : descendants()) {
      if (!patient || told.insert(pid).second) ::kill(pid, patient ? SIGTERM : SIGKILL);
    }
    if (reap_all()) return true;
    const auto left = (patient ? patience_ends : deadline) - now;
    if (left <= steady_clock::duration::zero()) return false;
    const auto wait = std::min<steady_clock::duration>(left, std::chrono::milliseconds(100));
    const timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(wait).count()};
    ::sigtimedwait(&child_ended, nullptr, &limit);
  }
}

void reap_adopted(const std::function<bool(pid_t)>& is_own) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 || is_own(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

Fd watch_adopted(EventLoop& loop, std::function<bool(pid_t)> is_own) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  Fd ended(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!ended) throw_errno("cannot watch for the end of processes");
  loop.watch(ended.get(), EPOLLIN, [fd = ended.get(), is_own = std::move(is_own)] {
    signalfd_siginfo info;
    while (::read(fd, &info, sizeof info) > 0) continue;
    reap_adopted(is_own);
  });
  return ended;
}

}  // namespace rondo::process
