// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace rondo::rendezvous {

// Addresses of an interface by name, or `name` itself when it is an address of this machine; IPv4 first, no link-local
// ones. Error(invalid_argument) listing what there is.
std::vector<std::string> addresses_of(const std::string& name);
// The name resolves to this machine: to a loopback address or to one of its interfaces'.
bool is_local(const std::string& host);
// The name is this machine's own, and means loopback here alone (Debian's hosts file: 127.0.1.1): for other machines it
// stands for one of network_addresses(). "localhost" and numeric addresses are no such names.
bool is_own_name(const std::string& host);
std::vector<std::string> network_addresses();  // neither loopback nor link-local; IPv4 first

}  // namespace rondo::rendezvous
