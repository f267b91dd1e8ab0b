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
  std::string start;    // since boot, in the kernel's units: with the id it names one process alone
  int status = 0;       // as wait() has it; 0 until it has ended, and to those who may not know
  bool ending = false;  // it runs no more, and has a status
};
std::optional<ProcessState> read_process(int pid);  // nothing where it is gone or not to be seen

std::string describe_signal(int signal);  // "signal 9 (Killed)"
std::string describe_exit(int code,
                          int signal);  // "exited with code 3" or, by a signal, "was killed by signal 9 (Killed)"

// The same of a process that has ended, behind this descriptor of it, or "ended" where how cannot be known: other
// users' processes, and on Linux before 6.15 those whose parent has asked.
std::string how_it_ended(int pid, int pidfd);

// The same of one that ends: it runs no more, but the kernel may still free its memory, which takes a second for some
// gigabytes, and only then do its descriptors tell, pidfds among them. Nothing where it lives, or that cannot be known.
std::optional<std::string> how_it_ends(int pid);

// By a signal or a debugger. False where that cannot be known.
bool is_stopped(int pid);
bool is_halted(int pid);  // the same, by a signal alone

}  // namespace rondo
