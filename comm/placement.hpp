// SPDX-License-Identifier: Apache-2.0
// Facts about this machine and what follows from them for a node's segment.
#pragma once
#include "comm/config.hpp"
#include "comm/segment.hpp"

namespace rondo::comm {

int usable_cores();  // of this thread's affinity mask

// FIFOs for that many ranks of a node within config.segment_bytes: fewer slots first, then shorter ones.
FifoShape fit_fifos(const Config& config, int local_size);

}  // namespace rondo::comm
