// SPDX-License-Identifier: Apache-2.0
// Links over one non-blocking socket per pair, used in both directions: scatter-gather writes from the caller's own
// memory, reads straight into it. The caller's thread drives the socket.
#pragma once
#include "comm/base/fd.hpp"
#include "comm/team/link.hpp"

namespace rondo::comm {

// Both halves share the socket; `peer` is the rank that errors name.
Links make_tcp_links(Fd socket, int peer, FifoShape shape);

}  // namespace rondo::comm
