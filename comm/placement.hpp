// SPDX-License-Identifier: Apache-2.0
// Facts about this machine and what follows from them for a node's segment.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "comm/config.hpp"
#include "comm/segment.hpp"

namespace rondo::comm {

int usable_cores();                                              // of this thread's affinity mask
std::vector<std::byte> usable_core_mask();                       // the same as a cpu_set_t's bytes
int count_cores(std::span<const std::vector<std::byte>> masks);  // those that are in any of them

// FIFOs for that many ranks of a node within config.segment_bytes: fewer slots first, then shorter ones.
FifoShape fit_fifos(const Config& config, int local_size);

}  // namespace rondo::comm
