// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

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

}  // namespace rondo::rendezvous
