// SPDX-License-Identifier: Apache-2.0
#include "comm/base/machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <sstream>

#include "comm/base/log.hpp"

namespace rondo {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string node_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  if (!boot_id.empty() && ::stat("/proc/self/ns/net", &network) == 0) {
    return fmt::format("{}:{}:{}", boot_id, network.st_dev, network.st_ino);
  }
  log::info("cannot tell which node this is; this rank will share memory with nobody");
  std::random_device random;
  return fmt::format("alone:{}:{:08x}{:08x}", ::getpid(), random(), random());
}

std::string pid_namespace() {
  std::array<char, 64> link{};
  return ::readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0 ? link.data() : "";
}

namespace {

struct Process {
  pid_t pid = 0, parent = 0;
  std::string program, start;  // both empty: not to be seen
  std::string identity() const { return fmt::format("{}.{}.{}", node_identity(), pid, start); }
};

Process process(pid_t pid) {
  Process result{.pid = pid, .parent = 0, .program = {}, .start = {}};
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line, word;
  std::getline(file, line);
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return result;
  result.program = line.substr(open + 1, close - open - 1);
  // The name in parentheses may hold spaces; the start time is the 20th word after it.
  std::istringstream words(line.substr(close + 1));
  words >> word >> result.parent;
  for (int i = 2; i < 20; ++i) words >> word;
  result.start = word;
  return result;
}

}  // namespace

std::string process_identity() { return process(::getpid()).identity(); }

std::string parent_identity() {
  const Process parent = process(::getppid());
  return parent.pid > 1 && !parent.start.empty() ? parent.identity() : "";
}

std::string ancestor_identity(const std::string& program) {
  Process above = process(::getppid());
  while (above.pid > 1 && above.program != program) above = process(above.parent);
  return above.pid > 1 ? above.identity() : "";
}

}  // namespace rondo
