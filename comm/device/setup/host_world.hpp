// SPDX-License-Identifier: Apache-2.0
// What the device side needs of the host communicator, as functions: made from one (host_world.cpp), or by tests.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/setup/authenticator.hpp"

namespace rondo::detail {
class CommunicatorImpl;
}

namespace rondo::comm::device {

using Bytes = std::vector<std::byte>;

struct HostWorld {
  int rank = 0, world_size = 1;
  std::vector<int> nodes;  // by rank
  std::string name;        // of the communicator, for log lines and meetings
  int driver = -1;         // of the communicator that this one comes from, see berth.hpp; -1: it comes from none
  std::shared_ptr<const Authenticator> authenticator;
  std::chrono::milliseconds join_timeout{300'000};
  // Collective: a value from every rank, in rank order. Throws the communicator's failure.
  std::function<std::vector<Bytes>(std::span<const std::byte>)> exchange;
  // This rank maps nothing of its peers any more; and whether `peer` has said so by then, or is gone.
  std::function<void()> announce_unmapped;
  std::function<bool(int peer, std::chrono::steady_clock::time_point until)> await_unmapped;

  int local_rank() const;  // among the ranks of this node
};

// `impl` must outlive the HostWorld. Collective; called by the thread that calls `impl`.
HostWorld make_host_world(rondo::detail::CommunicatorImpl& impl);

}  // namespace rondo::comm::device
