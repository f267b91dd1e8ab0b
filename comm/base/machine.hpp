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
// Of the process that started this one, likewise; empty: it is not to be seen, or has ended.
std::string parent_identity();
// Of the nearest process above this one that runs a program of that name, of which the kernel keeps 15 letters; or
// empty.
std::string ancestor_identity(const std::string& program);
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
