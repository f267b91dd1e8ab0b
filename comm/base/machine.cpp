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

std::string process_identity() {
  std::ifstream file("/proc/self/stat");
  std::string line, word;
  std::getline(file, line);
  // The name in parentheses may hold spaces; the start time is the 20th word after it.
  std::istringstream words(line.substr(std::min(line.rfind(')') + 1, line.size())));
  for (int i = 0; i < 20; ++i) words >> word;
  return fmt::format("{}.{}.{}", node_identity(), ::getpid(), word);
}

}  // namespace rondo
