// SPDX-License-Identifier: Apache-2.0
// Ranks as children of one process, for libraries that bring no launcher. A rank dies with its parent, and by SIGALRM
// after `limit_s`.
#pragma once
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

namespace rondo::peers {

inline int run_rank(int rank, unsigned limit_s, const std::function<int(int)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(limit_s);
  int status = 1;
  try {
    status = body(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  return status;
}

// The exit status: 0 when every rank's is.
inline int run_forked(int np, unsigned limit_s, const std::function<int(int)>& body) {
  for (int rank = 0; rank < np; ++rank) {
    if (::fork() == 0) ::_exit(run_rank(rank, limit_s, body));
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}

}  // namespace rondo::peers
