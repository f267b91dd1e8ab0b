// SPDX-License-Identifier: Apache-2.0
// Writes a whole line and a part of one with stdio, then crashes: what a program has not handed to the kernel is lost.
#include <csignal>
#include <cstdio>

int main(int argc, char**) {
  std::printf("a whole line\n");
  std::printf("a part that is handed over");
  if (argc > 1) std::fflush(stdout);
  std::raise(SIGKILL);
}
