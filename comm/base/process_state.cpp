// SPDX-License-Identifier: Apache-2.0
#include "comm/base/process_state.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace rondo {

// The name stands in parentheses and may hold anything; the start time is the 20th word after it.
std::optional<ProcessState> read_process(int pid) {
  constexpr int kWordsBetween = 17;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line, word;
  std::getline(file, line);
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessState found;
  found.program = line.substr(open + 1, close - open - 1);
  std::istringstream words(line.substr(close + 1));
  words >> found.state >> found.parent;
  for (int i = 0; i < kWordsBetween; ++i) words >> word;
  if (!(words >> found.start)) return std::nullopt;
  return found;
}

bool is_stopped(int pid) {
  const auto process = read_process(pid);
  return process && (process->state == 'T' || process->state == 't');
}

}  // namespace rondo
