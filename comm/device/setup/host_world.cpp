// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/host_world.hpp"

#include "comm/call/communicator_impl.hpp"

namespace rondo::comm::device {

int HostWorld::local_rank() const {
  int before = 0;
  for (int r = 0; r < rank; ++r) {
    if (nodes[static_cast<std::size_t>(r)] == nodes[static_cast<std::size_t>(rank)]) ++before;
  }
  return before;
}

HostWorld make_host_world(rondo::detail::CommunicatorImpl& impl) {
  HostWorld world;
  world.rank = impl.rank();
  world.world_size = impl.world_size();
  for (int r = 0; r < impl.world_size(); ++r) world.nodes.push_back(impl.team().placement(r).node);
  world.name = impl.bootstrap().name;
  world.driver = impl.bootstrap().driver;
  world.authenticator = impl.bootstrap().authenticator;
  world.join_timeout = impl.options().join_timeout;
  world.exchange = [&impl](std::span<const std::byte> value) { return impl.all_gather_bytes(value); };
  world.announce_unmapped = [&impl] { impl.team().announce_unmapped(); };
  world.await_unmapped = [&impl](int peer, std::chrono::steady_clock::time_point until) {
    return impl.team().await_unmapped(peer, until);
  };
  return world;
}

}  // namespace rondo::comm::device
