// SPDX-License-Identifier: Apache-2.0
// TLS over sockets, as comm's connections use it.
#pragma once
#include <memory>
#include <string_view>

#include <rondo/export.hpp>

#include "comm/setup/encryption.hpp"
#include "rendezvous/secret.hpp"

namespace rondo::rendezvous {

// With keys derived from the secret, `context` and what each connection's ends have said to each other.
RONDO_API std::shared_ptr<const Encryption> make_encryption(const Secret& secret, std::string_view context);

}  // namespace rondo::rendezvous
