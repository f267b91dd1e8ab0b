// SPDX-License-Identifier: Apache-2.0
// Communicators on simulated devices whose ranks are on different nodes. Ranks are threads that meet as processes do.
#pragma once
#include <fmt/format.h>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/comm/device/worlds.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/expect.hpp"

namespace rondo::test {

template <class Body>
std::vector<std::exception_ptr> run_on_nodes(const std::vector<int>& nodes, const Options& options, Body body) {
  auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    threads.emplace_back([&, r] {
      errors[r] = thrown_by([&] {
        Options own = options;
        own.node = fmt::format("node{}", nodes[r]);
        own.device.index = static_cast<int>(r);  // freeing memory waits for all of a device, other ranks' kernels too
        Bootstrap bootstrap;
        bootstrap.rank = static_cast<int>(r);
        bootstrap.world_size = static_cast<int>(nodes.size());
        bootstrap.store = store;
        Communicator comm = make_communicator(std::move(bootstrap), own);
        body(comm);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}
template <class Body>
void on_nodes(const std::vector<int>& nodes, Body body) {
  rethrow(run_on_nodes(nodes, on_sim(), body));
}

}  // namespace rondo::test
