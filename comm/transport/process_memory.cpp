// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/process_memory.hpp"

#include <sys/uio.h>

#include <cerrno>

namespace rondo {
namespace {

using Copy = decltype(&::process_vm_readv);

// Both calls may stop early, at the end of a mapping or for a signal.
int copy_all(Copy copy, int pid, std::byte* here, std::uint64_t there, std::size_t bytes) {
  while (bytes != 0) {
    const iovec local{here, bytes}, remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t moved = copy(pid, &local, 1, &remote, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? errno : EFAULT;
    here += moved;
    there += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace

int copy_from_process(int pid, std::uint64_t from, void* into, std::size_t bytes) {
  return copy_all(&::process_vm_readv, pid, static_cast<std::byte*>(into), from, bytes);
}

int copy_to_process(int pid, std::uint64_t into, const void* from, std::size_t bytes) {
  return copy_all(&::process_vm_writev, pid, static_cast<std::byte*>(const_cast<void*>(from)), into, bytes);
}

}  // namespace rondo
