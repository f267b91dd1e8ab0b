// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace rondo::launcher {

// A TCP port that nobody used a moment ago, for MASTER_PORT; 0 when there is none.
std::uint16_t free_port();

}  // namespace rondo::launcher
