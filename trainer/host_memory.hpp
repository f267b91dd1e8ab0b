// SPDX-License-Identifier: Apache-2.0
// Whether the CPU may touch memory that a caller passed without saying where it is.
#pragma once
#include <cstddef>

namespace rondo::trainer {

// False for null, for memory of a GPU and for what is not mapped. Its first and its last byte decide. Error(system).
bool host_can_reach(const void* memory, std::size_t bytes);

}  // namespace rondo::trainer
