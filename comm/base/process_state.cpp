// SPDX-License-Identifier: Apache-2.0
#include "comm/base/process_state.hpp"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace rondo {
namespace {

// Of /proc/PID/stat, what follows the name, which may hold anything; empty: it cannot be read.
std::string after_name(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(") ");
  return end == std::string::npos ? "" : line.substr(end + 2);
}

}  // namespace

bool is_stopped(int pid) {
  const std::string state = after_name(pid);
  return !state.empty() && (state.front() == 'T' || state.front() == 't');
}

}  // namespace rondo
