// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/pulse.hpp"

namespace rondo::rendezvous {

struct Listening {
  std::vector<Fd> sockets;
  std::vector<int> families;
  std::uint16_t port = 0;
};

struct AddressInUse : Error {
  using Error::Error;
};

// Every address of `hosts`, all at one port; 0: a port that is free on all of them. Of a name's addresses those are
// left out that this machine does not have (::1 without IPv6), unless none is left; this machine's own name
// (is_own_name) means its network addresses too. Throws with the address and the reason; AddressInUse: the port is
// taken. What is accepted has that patience (control_patience).
Listening listen_on(const std::vector<std::string>& hosts, std::uint16_t port,
                    std::chrono::milliseconds link_patience = kLinkPatience);

}  // namespace rondo::rendezvous
