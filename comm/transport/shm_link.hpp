// SPDX-License-Identifier: Apache-2.0
// Links through the node's segment: for processes (shm) and for ranks as threads (local) alike.
#pragma once
#include "comm/team/doorbell.hpp"
#include "comm/team/link.hpp"

namespace rondo::comm {

// `self` and `peer`: indices in the segment.
Links make_shm_links(Segment segment, Doorbells bells, int self, int peer);

}  // namespace rondo::comm
