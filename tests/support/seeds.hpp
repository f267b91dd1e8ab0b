// SPDX-License-Identifier: Apache-2.0
// Which of a search's seeds run: RONDO_SIM_SCHEDULES, so many of them from 1 on; RONDO_SIM_SEED, that one alone.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace rondo::test {

struct Seeds {
  std::uint64_t first = 1, last = 0;
  bool one = false;  // that somebody wants to see again

  static Seeds given(std::uint64_t usual) {
    if (const std::uint64_t only = number("RONDO_SIM_SEED", 0); only != 0) return {only, only, true};
    return {1, number("RONDO_SIM_SCHEDULES", usual), false};
  }

 private:
  static std::uint64_t number(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  }
};

}  // namespace rondo::test
