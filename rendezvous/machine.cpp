// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace rondo::rendezvous {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string node_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) boot = host_name();
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) return boot;
  return fmt::format("{}.{}", boot, space.st_ino);
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

}  // namespace rondo::rendezvous
