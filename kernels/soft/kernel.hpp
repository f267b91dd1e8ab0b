// SPDX-License-Identifier: Apache-2.0
// What stands for a kernel's address in the soft CUDA runtime: LaunchKernel takes a pointer to one of these.
#pragma once
#include <cstddef>

namespace rondo::soft {

struct Kernel {
  unsigned magic;
  const char* name;
  void (*run)(void* argument);  // by every lane
  std::size_t argument_bytes;
  bool lets_next_begin = false;  // says so as it begins: an early launch behind it may begin, too
};
inline constexpr unsigned kKernelMagic = 0x50F7C0DA;

template <auto Function, class Argument>
constexpr Kernel kernel(const char* name, bool lets_next_begin = false) {
  return {kKernelMagic, name, [](void* argument) { Function(*static_cast<const Argument*>(argument)); },
          sizeof(Argument), lets_next_begin};
}

}  // namespace rondo::soft
