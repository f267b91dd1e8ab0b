// SPDX-License-Identifier: Apache-2.0
// Links over an encrypted connection per pair and lane. The caller's thread drives it, and encrypts.
#pragma once
#include "comm/transport/transport.hpp"

namespace rondo::comm {

// Both halves share the connection; `peer` is the rank that errors name.
Links make_secure_links(SecuredSocket connection, int peer, Lane lane, FifoShape shape);

}  // namespace rondo::comm
