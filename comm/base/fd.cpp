// SPDX-License-Identifier: Apache-2.0
#include "comm/base/fd.hpp"

#include <fcntl.h>

#include <cerrno>

namespace rondo {

int above_standard_streams(int fd) {
  const bool closes_on_exec = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
  const int moved = ::fcntl(fd, closes_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

}  // namespace rondo
