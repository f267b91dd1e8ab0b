// SPDX-License-Identifier: Apache-2.0
// Steps that every rank takes and any may fail at: what went wrong on one, all learn, so that all throw or none does.
#pragma once
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "comm/device/setup/host_world.hpp"

namespace rondo::comm::device {

// Runs `body`; what it throws, as a sentence for the others. Empty: nothing.
template <class Body>
std::string obstacle_of(Body body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Collective: every rank's, in rank order.
std::vector<std::string> exchange_obstacles(const HostWorld& world, const std::string& obstacle);

// Error(code) "rank 2 cannot <what>: <obstacle>" for the first there is.
void throw_obstacle(const std::vector<std::string>& obstacles, ErrorCode code, const std::string& what);

}  // namespace rondo::comm::device
