// SPDX-License-Identifier: Apache-2.0
// Starts a child process that the kernel kills when the thread that started it ends.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>
#include <csignal>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::process {

struct Child {
  pid_t pid = -1;
  Fd pidfd;  // readable once the child has ended
};

// What `body` returns; 1, with its sentence, where it throws: nothing in a forked process may unwind into what its
// parent was doing.
int code_of(const std::function<int()>& body) noexcept;

// Forks. The child dies with the calling thread (PR_SET_PDEATHSIG), gets `mask` as its signal mask, and runs `body`,
// whose result is its exit code; stdio is flushed. With other threads alive, `body` may only make async-signal-safe
// calls.
Child fork_child(const sigset_t& mask, const std::function<int()>& body);

struct Program {
  std::vector<std::string> command;      // searched in PATH
  std::vector<std::string> environment;  // all of it, NAME=value
  int in = -1, out = -1, err = -1;       // -1: this process's own
  std::vector<int> keep{};               // descriptors that stay open in the program
  int index = 0;                         // named in a StartError
  std::vector<int> cpus{};               // that it may run on; empty: those of this process
  sigset_t mask{};
  rlimit open_files{};  // its limit; all zero: this process's own
};

// Raises this process's limit of open files as far as it may, and returns the one before.
rlimit raise_open_files();

struct StartError {
  int index = 0;
  int reason = 0;        // errno of exec, or
  bool binding = false;  // of being bound to its cores
};

// Reports of programs that could not be executed, from any number of children.
class StartErrors {
 public:
  StartErrors();
  int writer() const { return writer_.get(); }
  // Call it when a child has ended. nullopt: the program with this index had been started.
  std::optional<StartError> find(int index);

 private:
  Fd reader_, writer_;
  std::vector<StartError> seen_;
};

// The child leads a process group of its own. Exits with 127 (not found) or 126 when the program cannot be executed.
Child start_program(const Program& program, const StartErrors& errors);

}  // namespace rondo::process
