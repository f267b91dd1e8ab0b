// SPDX-License-Identifier: Apache-2.0
// Facts about this machine and what follows from them for a node's segment.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "comm/setup/config.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

// Of this thread's affinity mask, or what the CPU quota of its control group comes to when that is less; at least 1.
int usable_cores();
int within_quota(int cores);                                     // what that quota leaves of them; at least 1
std::vector<std::byte> usable_core_mask();                       // of this thread, a cpu_set_t's bytes
int count_cores(std::span<const std::vector<std::byte>> masks);  // those that are in any of them

// FIFOs for that many ranks of a node within config.segment_bytes: fewer slots first, then shorter ones.
FifoShape fit_fifos(const Config& config, int local_size);

}  // namespace rondo::comm
