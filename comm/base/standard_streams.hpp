// SPDX-License-Identifier: Apache-2.0
// Programs started without a standard stream (`program >&-`): the number goes to whatever is opened next, which then
// gets what is meant for a terminal.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace rondo {

// For the first line of a main() of ours: what is missing becomes /dev/null, for good. Where that cannot be opened,
// nothing changes.
inline void open_missing_streams() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd >= 0 && fd <= STDERR_FILENO) continue;
    if (fd >= 0) ::close(fd);
    return;
  }
}

// The same for as long as this lives, in a process that is not ours: around what makes descriptors that Fd does not
// own.
class MissingStreamsTaken {
 public:
  MissingStreamsTaken() {
    for (int& fd : taken_) {
      fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (fd <= STDERR_FILENO) continue;
      ::close(fd);
      fd = -1;
      return;
    }
  }
  ~MissingStreamsTaken() {
    for (const int fd : taken_) {
      if (fd >= 0) ::close(fd);
    }
  }
  MissingStreamsTaken(const MissingStreamsTaken&) = delete;
  MissingStreamsTaken& operator=(const MissingStreamsTaken&) = delete;

 private:
  std::array<int, 3> taken_{-1, -1, -1};
};

}  // namespace rondo
