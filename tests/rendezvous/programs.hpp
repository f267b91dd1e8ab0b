// SPDX-License-Identifier: Apache-2.0
// Programs as child processes with an environment of the test's own; a test that ends kills them.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/base/system_error.hpp"

namespace rondo::rendezvous::test {

class Program {
 public:
  Program(std::vector<std::string> command, std::vector<std::string> environment) {
    int output[2], errors[2];
    if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(errors, O_CLOEXEC) != 0) throw_errno("cannot make pipes");
    out_.reset(output[0]);
    err_.reset(errors[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, output[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
    std::vector<char*> argv = pointers(command), envp = pointers(environment);
    const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(output[1]);
    ::close(errors[1]);
    if (failed != 0) throw Error(ErrorCode::system, "cannot start " + command[0]);
  }
  Program(Program&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), out_(std::move(other.out_)), err_(std::move(other.err_)) {}
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  std::string line() { return read(out_, true); }
  // Reads lines of stderr, to the one that holds `text`; false: there is none.
  bool says(const std::string& text) {
    for (;;) {
      const std::string next = read(err_, true);
      if (next.empty()) return false;
      err += next + "\n";
      if (next.find(text) != std::string::npos) return true;
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  // The exit code, or 128 + signal.
  int wait() {
    out += read(out_, false);
    err += read(err_, false);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string out, err;

 private:
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& each : strings) result.push_back(each.data());
    result.push_back(nullptr);
    return result;
  }
  // To the end, or of one line; what takes longer than 30 s ends the wait.
  static std::string read(const Fd& fd, bool one_line) {
    std::string text;
    char buffer[4096];
    pollfd waiting{fd.get(), POLLIN, 0};
    while (::poll(&waiting, 1, 30'000) > 0) {
      const ssize_t got = ::read(fd.get(), buffer, one_line ? 1 : sizeof buffer);
      if (got <= 0 || (one_line && buffer[0] == '\n')) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

  pid_t pid_ = -1;
  Fd out_, err_;
};

}  // namespace rondo::rendezvous::test
