// SPDX-License-Identifier: Apache-2.0
// Trainings by resumer, and what they say.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/support/temporary_folder.hpp"

namespace rondo::test {

inline std::vector<std::string> training(const TemporaryFolder& folder, int steps, int pause_ms) {
  return {tool("resumer"), folder.file("state"), std::to_string(steps), std::to_string(pause_ms)};
}

inline std::string undisturbed_result(int steps) {
  const TemporaryFolder folder;
  auto words = training(folder, steps, 0);
  words.insert(words.begin(), {"-n", "2"});
  return Running(rondorun(words)).lines("result ", 2).front();
}

// Until a rank of this node has started, and said so: returns its pid.
inline pid_t await_start(Running& node, const std::string& how) {
  const auto line = node.lines("start " + how, 1).back();
  return std::stoi(line.substr(line.rfind(' ')));
}

}  // namespace rondo::test
