// SPDX-License-Identifier: Apache-2.0
#include "comm/base/machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>

#include "comm/base/log.hpp"
#include "comm/base/process_state.hpp"

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

std::string identity_of(int pid, const std::string& start) {
  return fmt::format("{}.{}.{}", node_identity(), pid, start);
}

}  // namespace

std::string process_identity() {
  const auto self = read_process(::getpid());
  return identity_of(::getpid(), self ? self->start : "");
}

std::string parent_identity() {
  const int pid = ::getppid();
  const auto parent = pid > 1 ? read_process(pid) : std::nullopt;
  return parent ? identity_of(pid, parent->start) : "";
}

std::string ancestor_identity(const std::string& program) {
  for (int pid = ::getppid(); pid > 1;) {
    const auto above = read_process(pid);
    if (!above) break;
    if (above->program == program) return identity_of(pid, above->start);
    pid = above->parent;
  }
  return "";
}

}  // namespace rondo
