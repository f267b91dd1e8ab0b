// SPDX-License-Identifier: Apache-2.0
// RONDO_SHARED variables: each gets its place in the block's arena when its first lane comes by.
#include "kernels/simt/machine.hpp"

#ifdef RONDO_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace rondo::simt {

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t kGap = 16;  // stays poisoned under AddressSanitizer
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  Block& block = *lane.home;
  for (unsigned i = 0; i < block.variable_count; ++i) {
    if (block.variables[i].key == key) return block.shared.get() + block.variables[i].offset;
  }
  const std::size_t offset = (block.shared_used + alignment - 1) / alignment * alignment;
  if (block.variable_count == kSharedVariables || offset + bytes > machine.options.shared_bytes) {
    machine.fail(lane, "too much shared memory: %zu bytes more than the %zu used, of %zu", bytes, block.shared_used,
                 machine.options.shared_bytes);
  }
  block.variables[block.variable_count++] = {key, offset};
  block.shared_used = offset + bytes + kGap;
#ifdef RONDO_SIMT_ASAN
  __asan_unpoison_memory_region(block.shared.get() + offset, bytes);
#endif
  return block.shared.get() + offset;
}

}  // namespace rondo::simt
