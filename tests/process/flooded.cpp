// SPDX-License-Identifier: Apache-2.0
// A rank that meets the others, says how long that took, adds something up, and stays until SIGTERM.
#include <pthread.h>
#include <csignal>

#include <chrono>
#include <cstdio>

#include <rondo/rondo.hpp>

int main() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  try {
    rondo::Options options;
    options.join_timeout = std::chrono::seconds(20);
    const auto begun = std::chrono::steady_clock::now();
    auto communicator = rondo::Communicator::from_environment(options);
    const auto took = std::chrono::steady_clock::now() - begun;
    float sum = 1;
    communicator.all_reduce(std::span(&sum, 1), rondo::ReduceOp::sum);
    if (sum != static_cast<float>(communicator.world_size())) return 3;
    std::printf("met within %lld ms\n",
                static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
    std::fflush(stdout);
    int signal = 0;
    sigwait(&ends, &signal);
    communicator.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
