// SPDX-License-Identifier: Apache-2.0
#include "comm/base/process_state.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace rondo {

// The name stands in parentheses and may hold anything; after it the start time is the 20th word, the status the 50th.
std::optional<ProcessState> read_process(int pid) {
  constexpr int kBeforeStart = 17, kBeforeStatus = 29;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line, word;
  std::getline(file, line);
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessState found;
  found.program = line.substr(open + 1, close - open - 1);
  std::istringstream words(line.substr(close + 1));
  words >> found.state >> found.parent;
  for (int i = 0; i < kBeforeStart; ++i) words >> word;
  if (!(words >> found.start)) return std::nullopt;
  for (int i = 0; i < kBeforeStatus; ++i) words >> word;
  words >> found.status;
  return found;
}

namespace {

// As wait() has it. That of a process whose parent has not yet asked: its entry is its user's.
std::optional<int> status_of_zombie(int pid) {
  const auto process = read_process(pid);
  if (!process || process->state != 'Z') return std::nullopt;
  struct stat entry {};
  const bool is_ours = ::stat(fmt::format("/proc/{}", pid).c_str(), &entry) == 0 && entry.st_uid == ::geteuid();
  if (process->status == 0 && !is_ours) return std::nullopt;
  return process->status;
}

// That of one whose parent has. The kernel's struct pidfd_info and its ioctl, which headers of 2022 lack.
std::optional<int> status_of_reaped(int pidfd) {
  struct Info {
    std::uint64_t mask, cgroup;
    std::uint32_t ids[11];
    std::int32_t status;
  };
  static_assert(sizeof(Info) == 64);
  constexpr std::uint64_t kStatus = 1 << 3;
  Info info{.mask = kStatus, .cgroup = 0, .ids = {}, .status = 0};
  if (::ioctl(pidfd, _IOWR(0xff, 11, Info), &info) != 0 || (info.mask & kStatus) == 0) return std::nullopt;
  return info.status;
}

}  // namespace

std::string describe_signal(int signal) {
  const char* words = sigdescr_np(signal);
  return words != nullptr ? fmt::format("signal {} ({})", signal, words) : fmt::format("signal {}", signal);
}

std::string describe_exit(int code, int signal) {
  return signal != 0 ? "was killed by " + describe_signal(signal) : fmt::format("exited with code {}", code);
}

// Asked again: its parent may have been faster than the first question, whose answer another process gave then.
std::string how_it_ended(int pid, int pidfd) {
  const auto in_time = status_of_zombie(pid), too_late = status_of_reaped(pidfd);
  const auto status = too_late ? too_late : in_time;
  if (!status) return "ended";
  return WIFSIGNALED(*status) ? describe_exit(0, WTERMSIG(*status)) : describe_exit(WEXITSTATUS(*status), 0);
}

bool is_stopped(int pid) {
  const auto process = read_process(pid);
  return process && (process->state == 'T' || process->state == 't');
}

}  // namespace rondo
