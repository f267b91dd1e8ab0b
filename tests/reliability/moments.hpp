// SPDX-License-Identifier: Apache-2.0
// The phases of a short life, and how a process says to who traces it that one begins: by a call that the kernel
// refuses.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

namespace rondo::test {

inline constexpr const char* kLifePhases[] = {"join", "collectives", "messages", "split",
                                              "save", "shrink",      "grow",     "farewell"};
inline constexpr long kMark = -0x726f6e64;  // of what getpriority(2) knows nothing
inline constexpr int kEveryCall = -1;       // as a phase: from the program's start; one less: of its child, and so on

// -1: there is none.
inline int phase_of(std::string_view name) {
  for (int phase = 0; const char* one : kLifePhases) {
    if (name == one) return phase;
    ++phase;
  }
  return -1;
}
inline void mark(int phase) { ::syscall(SYS_getpriority, kMark, phase); }

}  // namespace rondo::test
