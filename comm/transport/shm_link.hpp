// SPDX-License-Identifier: Apache-2.0
// Links through the node's segment: for processes (shm) and for ranks as threads (local) alike.
#pragma once
#include <memory>

#include "comm/team/doorbell.hpp"
#include "comm/team/link.hpp"

namespace rondo::comm {

std::unique_ptr<SendLink> make_shm_send_link(Segment segment, Doorbells bells, int self, int peer);
std::unique_ptr<RecvLink> make_shm_recv_link(Segment segment, Doorbells bells, int self, int peer);

}  // namespace rondo::comm
