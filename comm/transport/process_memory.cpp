// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/process_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

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

double copied_page_us() {
  constexpr std::size_t kPages = 64, kPageBytes = 4 << 10;
  constexpr int kTries = 8;
  std::vector<std::byte> from(kPages * kPageBytes, std::byte{1}), to(from);
  double kernel_us = std::numeric_limits<double>::infinity(), own_us = kernel_us;
  const auto time_us = [](auto copy) {
    const auto begun = std::chrono::steady_clock::now();
    copy();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  };
  int fault = 0;
  for (int i = 0; i < kTries && fault == 0; ++i) {
    kernel_us = std::min(kernel_us, time_us([&] {
                           fault = copy_from_process(::getpid(), reinterpret_cast<std::uintptr_t>(from.data()),
                                                     to.data(), to.size());
                         }));
    own_us = std::min(own_us, time_us([&] { std::memcpy(to.data(), from.data(), to.size()); }));
  }
  return fault == 0 ? (kernel_us - own_us) / kPages : std::numeric_limits<double>::infinity();
}

int copy_to_process(int pid, std::uint64_t into, const void* from, std::size_t bytes) {
  return copy_all(&::process_vm_writev, pid, static_cast<std::byte*>(const_cast<void*>(from)), into, bytes);
}

}  // namespace rondo
