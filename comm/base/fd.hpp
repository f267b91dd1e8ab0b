// SPDX-License-Identifier: Apache-2.0
// The one owner of a file descriptor. None of ours is 0, 1 or 2: where a program was started without one of those, what
// it writes there would go to a peer.
#pragma once
#include <unistd.h>

#include <utility>

#include "comm/base/fork.hpp"

namespace rondo {

// The same file under a number above 2, closed on exec as before; -1 and errno when there is none left.
int above_standard_streams(int fd);

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(above(fd)) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) replace(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { replace(-1); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    unmark_for_children(fd_);
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) { replace(above(fd)); }
  // For sockets, whose end tells peers of the end of this process: a child that it forks holds no copy.
  void close_in_children() const { mark_for_children(fd_); }

 private:
  static int above(int fd) { return fd < 0 || fd > STDERR_FILENO ? fd : above_standard_streams(fd); }
  void replace(int fd) {
    if (fd_ >= 0) {
      unmark_for_children(fd_);
      ::close(fd_);
    }
    fd_ = fd;
  }

  int fd_ = -1;
};

}  // namespace rondo
