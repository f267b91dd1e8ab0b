// SPDX-License-Identifier: Apache-2.0
// A rank that does not come, until the others have found out.
#pragma once
#include <chrono>
#include <thread>

#include <rondo/communicator.hpp>

namespace rondo::test {

inline void await_failure(Communicator& comm, std::chrono::seconds at_most = std::chrono::seconds(20)) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  while (std::chrono::steady_clock::now() < until) {
    comm.check();
    std::this_thread::yield();
  }
}

}  // namespace rondo::test
