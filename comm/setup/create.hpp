// SPDX-License-Identifier: Apache-2.0
// The ways in which a communicator comes to be; make_communicator (bootstrap.hpp) is one more.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/setup/bootstrap.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo::cuda {
struct Api;
}

namespace rondo::comm {

// `api`: instead of the table of the options' kind of device, for tests that count or break its calls.
std::vector<Communicator> make_local(int world_size, const Options& options, const cuda::Api* api = nullptr);
Communicator split(detail::CommunicatorImpl& parent, int color, int key);
Communicator split(detail::CommunicatorImpl& parent, int color, int key, const Options& options);
// Collective: the same ranks on that device, in their order. For programs that measure, too.
RONDO_API Communicator move_to(Communicator& ranks, Device device);
Communicator shrink(detail::CommunicatorImpl& failed);
// See Communicator::grow.
Communicator grow(detail::CommunicatorImpl& parent, int world_size, std::chrono::milliseconds timeout);

// How a rank that cannot share memory tells those of its node, who wait for it. Empty: in the job's store.
struct Obstacles {
  std::function<void()> tell{};
  std::function<bool(int rank)> has_told{};  // that rank of the new communicator; looked at often
};

// Meets the other ranks at `place`: kExchanges calls of exchange(), whatever happens short of an error.
inline constexpr int kExchanges = 2;
// The lookout knows of ranks that go meanwhile, beside what shows in the processes of this node.
Communicator connect(Bootstrap bootstrap, Store& place, const Options& options, Lookout lookout = {},
                     Obstacles obstacles = {});

// Ranks as threads of this process: the shared half of their Teams.
struct LocalGroup;
std::shared_ptr<LocalGroup> make_local_group(int world_size, const Options& options);
// driver: see Bootstrap.
Communicator join_local_group(const std::shared_ptr<LocalGroup>& group, int rank, Device device, int driver);

}  // namespace rondo::comm
