// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <string>

#include "comm/base/fd.hpp"

namespace rondo::rendezvous {

using Deadline = std::chrono::steady_clock::time_point;

// One attempt at every address of the name, non-blocking. Nothing: `reason` says why, and a later attempt may do.
Fd try_connect(const std::string& host, std::uint16_t port, Deadline deadline, std::string& reason);
std::string local_address_of(int fd);
// Milliseconds for poll, rounded up, from 0.
int poll_ms(Deadline deadline);

}  // namespace rondo::rendezvous
