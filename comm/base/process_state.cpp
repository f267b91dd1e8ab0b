// SPDX-License-Identifier: Apache-2.0
#include "comm/base/process_state.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace rondo {

namespace {

// Of a process' folder or one of its threads'. The name stands in parentheses and may hold anything; after it the flags
// are the 7th word, the start time is the 20th, the size of the memory the 21st, the status the 50th. A thread has its
// status when its flags have PF_EXITING and its memory is no longer its own.
std::optional<ProcessState> read_stat(const std::string& folder) {
  constexpr int kBeforeFlags = 4, kBeforeStart = 12, kBeforeStatus = 28;
  constexpr std::uint64_t kExiting = 4;
  std::ifstream file(folder + "/stat");
  std::string line, word;
  std::getline(file, line);
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessState found;
  found.program = line.substr(open + 1, close - open - 1);
  std::istringstream words(line.substr(close + 1));
  std::uint64_t flags = 0, bytes = 0;
  words >> found.state >> found.parent;
  for (int i = 0; i < kBeforeFlags; ++i) words >> word;
  words >> flags;
  for (int i = 0; i < kBeforeStart; ++i) words >> word;
  if (!(words >> found.start >> bytes)) return std::nullopt;
  found.ending = (flags & kExiting) != 0 && bytes == 0;
  for (int i = 0; i < kBeforeStatus; ++i) words >> word;
  words >> found.status;
  return found;
}

// As wait() has it. That of a process whose parent has not yet asked: its entry is its user's.
std::optional<int> status_of_ending(int pid) {
  const auto process = read_process(pid);
  if (!process || !process->ending) return std::nullopt;
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

std::string describe_status(std::optional<int> status) {
  if (!status) return "ended";
  return WIFSIGNALED(*status) ? describe_exit(0, WTERMSIG(*status)) : describe_exit(WEXITSTATUS(*status), 0);
}

}  // namespace

std::optional<ProcessState> read_process(int pid) { return read_stat(fmt::format("/proc/{}", pid)); }

std::string describe_signal(int signal) {
  const char* words = sigdescr_np(signal);
  return words != nullptr ? fmt::format("signal {} ({})", signal, words) : fmt::format("signal {}", signal);
}

std::string describe_exit(int code, int signal) {
  return signal != 0 ? "was killed by " + describe_signal(signal) : fmt::format("exited with code {}", code);
}

// Asked again: its parent may have been faster than the first question, whose answer another process gave then.
std::string how_it_ended(int pid, int pidfd) {
  const auto in_time = status_of_ending(pid), too_late = status_of_reaped(pidfd);
  return describe_status(too_late ? too_late : in_time);
}

// The first thread may end before the others. Most often it has not, and one look is enough.
std::optional<std::string> how_it_ends(int pid) {
  const auto threads = fmt::format("/proc/{}/task", pid);
  const auto is_ending = [](const std::string& folder) {
    const auto state = read_stat(folder);
    return state && state->ending;
  };
  if (!is_ending(fmt::format("{}/{}", threads, pid))) return std::nullopt;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(threads, gone), end; !gone && entry != end; entry.increment(gone)) {
    if (!is_ending(entry->path())) return std::nullopt;
  }
  if (gone) return std::nullopt;
  return describe_status(status_of_ending(pid));
}

bool is_stopped(int pid) {
  const auto process = read_process(pid);
  return process && (process->state == 'T' || process->state == 't');
}

bool is_halted(int pid) {
  const auto process = read_process(pid);
  return process && process->state == 'T';
}

}  // namespace rondo
