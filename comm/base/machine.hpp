// SPDX-License-Identifier: Apache-2.0
// Which machine this is, as far as processes can tell.
#pragma once
#include <string>

namespace rondo {

std::string host_name();
// Equal for processes that may share memory: the kernel's boot and the network namespace. Where neither can be read,
// an identity that nobody else has.
std::string node_identity();
// Of this process, never used again by another.
std::string process_identity();
std::string pid_namespace();  // process ids mean the same where it is equal; empty: unknown

// In a loop that spins: leaves the core's other thread, and the memory, room to work.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace rondo
