// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::rendezvous {

struct Listening {
  std::vector<Fd> sockets;
  std::vector<int> families;
  std::uint16_t port = 0;
};

// Every address of every name in `hosts`, all at one port; 0: a port that is free on all of them. Throws with the
// address and the reason.
Listening listen_on(const std::vector<std::string>& hosts, std::uint16_t port);

}  // namespace rondo::rendezvous
