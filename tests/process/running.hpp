// SPDX-License-Identifier: Apache-2.0
// A program under test as a child process, with its output collected. Every wait has a deadline.
#pragma once
#include <sys/types.h>
#include <csignal>

#include <chrono>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::test {

struct Ended {
  int code = -1;   // 128 + signal when a signal killed it, as a shell says
  int signal = 0;  // that killed it
  std::string out, err;
  double seconds = 0;
};

class Running {
 public:
  struct How {
    std::vector<std::string> environment{};  // added to this process's
    std::string in{};                        // its standard input
    bool own_group = false;                  // leads a process group
    bool one_stream = false;                 // stderr goes where stdout goes
    std::chrono::seconds limit{30};          // of each wait
  };
  explicit Running(const std::vector<std::string>& command) : Running(command, How{}) {}
  Running(const std::vector<std::string>& command, const How& how);
  ~Running();  // kills it

  pid_t pid() const { return pid_; }
  void signal(int signal) const { ::kill(pid_, signal); }
  // Reads until stdout holds `count` lines that begin with `text` (after a [rank] prefix); returns the rests of them.
  std::vector<std::string> lines(const std::string& text, std::size_t count);
  // The same of what it has said by now, however many.
  std::vector<std::string> lines_so_far(const std::string& text);
  void close_output() { out_.reset(); }
  Ended wait();

 private:
  bool read_more(int timeout_ms);  // false: both streams have ended, or timeout
  std::vector<std::string> find_lines(const std::string& text) const;

  pid_t pid_ = -1;
  Fd pidfd_, out_, err_;
  Ended ended_;
  std::chrono::seconds limit_;
  std::chrono::steady_clock::time_point started_;
};

Ended run(const std::vector<std::string>& command, const Running::How& how = {});

std::string tool(const std::string& name);  // path of a program of this build
std::vector<std::string> rondorun(std::vector<std::string> arguments);

// Watches processes by descriptor, so that a number used again does not mislead.
class Watched {
 public:
  explicit Watched(const std::vector<std::string>& pids);
  bool all_gone_within(std::chrono::milliseconds limit) const;

 private:
  std::vector<Fd> pidfds_;
};

}  // namespace rondo::test
