// SPDX-License-Identifier: Apache-2.0
// Everything a program needs: the communicator, its collectives, and ways to start ranks.
#pragma once
#include <functional>
#include <memory>

#include <rondo/communicator.hpp>

namespace rondo {

// Runs `body` in world_size child processes, each with a communicator, and waits for them. Returns 0 when all did, or
// when those that shrank without a rank that failed did. Otherwise the others are stopped, and the exit code (128 +
// signal) of the first that failed is returned. Sentences on stderr name who failed and why. An exception in `body` is
// such a failure.
// invalid_argument where this process has other threads, which ranks that it forks would lack: call it before anything
// starts some, as OpenMP, BLAS and libtorch do at their first use and a communicator does when it is made.
RONDO_API int spawn(int world_size, std::function<void(Communicator&)> body);

// The key-value store of the ranks that meet as Communicator::create lets them; every rank opens it, with the same
// errors. It lives as long as rank 0's process, or the launcher, serves; any thread may use it.
RONDO_API std::shared_ptr<Store> open_store(const Rendezvous& rendezvous = {}, Options options = {});

}  // namespace rondo
