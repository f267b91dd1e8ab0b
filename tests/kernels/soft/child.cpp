// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/soft/child.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "tests/support/catch.hpp"

namespace rondo::soft::testing {

Pipes::Pipes() {
  REQUIRE(pipe(to_child) == 0);
  REQUIRE(pipe(to_parent) == 0);
}
Pipes::~Pipes() {
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) {
    if (fd >= 0) close(fd);
  }
}

bool Wire::send_bytes(const void* bytes, std::size_t count) const {
  return write(out_, bytes, count) == static_cast<ssize_t>(count);  // less than PIPE_BUF: whole
}
bool Wire::receive_bytes(void* bytes, std::size_t count) const {
  for (auto* at = static_cast<char*>(bytes); count > 0;) {
    const ssize_t got = read(in_, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

Child::Child(const std::function<int(const Wire&)>& body) : wire_(pipes_.to_parent[0], pipes_.to_child[1]) {
  signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    for (const int signal_number : {SIGABRT, SIGSEGV, SIGTERM}) signal(signal_number, SIG_DFL);  // not Catch2's
    alarm(30);
    close(pipes_.to_child[1]);
    close(pipes_.to_parent[0]);
    std::exit(body(Wire(pipes_.to_child[0], pipes_.to_parent[1])));
  }
  close(pipes_.to_child[0]);
  close(pipes_.to_parent[1]);
  pipes_.to_child[0] = pipes_.to_parent[1] = -1;
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Child::kill_hard() {
  kill(pid_, SIGKILL);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);  // dead, and still a zombie
}

int Child::wait() {
  int status = 0;
  REQUIRE(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace rondo::soft::testing
