// SPDX-License-Identifier: Apache-2.0
// How a program that a test starts speaks to it: whole lines at once, with times of the clock that all processes share.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>

namespace rondo::test {

inline void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

inline long long now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace rondo::test
