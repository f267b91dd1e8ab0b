// SPDX-License-Identifier: Apache-2.0
// What the kernel says of a process whose id means the same here.
#pragma once
#include <optional>
#include <string>

namespace rondo {

struct ProcessState {
  std::string program;  // its name, as far as the kernel keeps it
  char state = 0;       // a letter of proc(5)
  int parent = 0;
  std::string start;  // since boot, in the kernel's units: with the id it names one process alone
};
std::optional<ProcessState> read_process(int pid);  // nothing where it is gone or not to be seen

// By a signal or a debugger. False where that cannot be known.
bool is_stopped(int pid);

}  // namespace rondo
