// SPDX-License-Identifier: Apache-2.0
// Who listens at a port of this machine, as far as this user may know.
#pragma once
#include <cstdint>
#include <string>

namespace rondo::runtime {

// "process 123 (python3)", several with commas; empty: nobody, or a process of another user or container.
std::string holder_of_port(std::uint16_t port);

}  // namespace rondo::runtime
