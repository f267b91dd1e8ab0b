// SPDX-License-Identifier: Apache-2.0
// A program that does not want to end: ignores every signal it can, with a helper that does the same and a daemon that
// left its parent, its process group and its session. Prints "pid N" for each of them.
#include <fcntl.h>
#include <unistd.h>
#include <csignal>

#include <cstdio>

namespace {

void announce() {
  char line[32];
  const int length = std::snprintf(line, sizeof line, "pid %d\n", ::getpid());
  if (::write(1, line, static_cast<size_t>(length)) < 0) ::_exit(1);
}

[[noreturn]] void stay() {
  announce();
  for (;;) ::pause();
}

}  // namespace

int main() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_IGN);
  if (::fork() == 0) stay();
  if (::fork() == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    announce();
    const int nothing = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(nothing, fd);
    for (;;) ::pause();
  }
  stay();
}
