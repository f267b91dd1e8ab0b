// SPDX-License-Identifier: Apache-2.0
// A rank that survives: reduces until a rank is lost, then goes on with those that are left.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main() {
  try {
    auto comm = rondo::Communicator::from_environment({.join_timeout = std::chrono::seconds(20)});
    std::vector<int> ones(100'000, 1);
    comm.barrier();
    say(fmt::format("joined {} {}", comm.rank(), ::getpid()));
    try {
      for (;;) comm.all_reduce(ones, rondo::ReduceOp::max);
    } catch (const rondo::Error& error) {
      say(fmt::format("lost {}", error.culprit()));
    }
    auto next = comm.shrink();
    next.all_reduce(ones, rondo::ReduceOp::sum);
    const auto half = next.split(next.rank() % 2, 0);
    say(fmt::format("shrunk rank {} of {}, sum {}, split {}", next.rank(), next.world_size(), ones.front(),
                    half.world_size()));
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
