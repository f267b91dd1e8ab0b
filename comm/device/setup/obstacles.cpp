// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/obstacles.hpp"

#include <fmt/format.h>

#include "comm/base/bytes.hpp"

namespace rondo::comm::device {

std::vector<std::string> exchange_obstacles(const HostWorld& world, const std::string& obstacle) {
  std::vector<std::string> all;
  for (const Bytes& bytes : world.exchange(ByteWriter().text(obstacle).take())) {
    all.push_back(ByteReader(bytes).text());
  }
  return all;
}

void throw_obstacle(const std::vector<std::string>& obstacles, ErrorCode code, const std::string& what) {
  for (std::size_t r = 0; r < obstacles.size(); ++r) {
    if (obstacles[r].empty()) continue;
    throw Error(code, fmt::format("rank {} cannot {}: {}", r, what, obstacles[r]), static_cast<int>(r));
  }
}

}  // namespace rondo::comm::device
