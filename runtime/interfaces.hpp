// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace rondo::runtime {

// Addresses of an interface by name, or `name` itself when it is an address of this machine; IPv4 first, no link-local
// ones. Error(invalid_argument) listing what there is.
std::vector<std::string> addresses_of(const std::string& name);
// The name resolves to this machine: to a loopback address or to one of its interfaces'.
bool is_local(const std::string& host);
bool is_loopback(const std::string& host);  // it resolves to loopback addresses alone

}  // namespace rondo::runtime
