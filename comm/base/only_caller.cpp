// SPDX-License-Identifier: Apache-2.0
#include "comm/base/only_caller.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "comm/base/fd.hpp"

namespace rondo {
namespace {

// By their names (kernels/thread.hpp). Those of asynchronous calls and messages run the program's callbacks.
constexpr std::array<std::string_view, 6> kRunNothingOfOthers{"rondo-monitor", "rondo-client",    "rondo-server",
                                                              "rondo-judge",   "rondo-neighbour", "rondo-interrupt"};
constexpr std::size_t kMostThreads = kRunNothingOfOthers.size() + 2;  // of more, one is the program's

std::string name_of(const std::string& thread) {
  const Fd file(::open(("/proc/self/task/" + thread + "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 32> name{};
  const ssize_t bytes = file ? ::read(file.get(), name.data(), name.size()) : 0;
  return {name.data(), bytes <= 0 ? 0 : static_cast<std::size_t>(bytes) - 1};  // a line
}

}  // namespace

bool is_only_caller() {
  struct stat tasks {};
  if (::stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink > kMostThreads + 2) return false;  // beside . and ..
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/task"), &::closedir);
  if (!folder) return false;
  const std::string self = std::to_string(::gettid());
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string thread = entry->d_name;
    if (thread.front() == '.' || thread == self) continue;
    const std::string name = name_of(thread);
    if (std::find(kRunNothingOfOthers.begin(), kRunNothingOfOthers.end(), name) == kRunNothingOfOthers.end())
      return false;
  }
  return true;
}

}  // namespace rondo
