// SPDX-License-Identifier: Apache-2.0
#include "trainer/host_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// The kernel is asked to read it into a pipe: where it cannot, it says so instead of a signal.
bool host_can_reach(const void* memory, std::size_t bytes) {
  if (bytes == 0) return true;
  if (memory == nullptr) return false;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorCode::system, std::string("cannot open a pipe: ") + std::strerror(errno));
  }
  const auto* const first = static_cast<const std::byte*>(memory);
  const bool reached = ::write(ends[1], first, 1) == 1 && ::write(ends[1], first + (bytes - 1), 1) == 1;
  for (const int end : ends) ::close(end);
  return reached;
}

}  // namespace rondo::trainer
