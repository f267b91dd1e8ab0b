// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace rondo::rendezvous {

std::string host_name();
// Equal for processes that may share memory: the kernel's boot and the network namespace.
std::string node_identity();
// Of this process, never used again by another.
std::string process_identity();

}  // namespace rondo::rendezvous
