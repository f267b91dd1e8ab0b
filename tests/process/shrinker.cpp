// SPDX-License-Identifier: Apache-2.0
// A rank that survives: reduces until a rank is lost, then goes on with those that are left. shrinker [HOW]: "late": it
// computes for longer first than a launcher waits. "fails": the last rank of those that are left exits with code 3.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** argv) {
  const std::string_view how = count > 1 ? argv[1] : "";
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
    if (how == "late") std::this_thread::sleep_for(std::chrono::milliseconds(600));
    auto next = comm.shrink();
    next.all_reduce(ones, rondo::ReduceOp::sum);
    const auto half = next.split(next.rank() % 2, 0);
    say(fmt::format("shrunk rank {} of {}, sum {}, split {}", next.rank(), next.world_size(), ones.front(),
                    half.world_size()));
    return how == "fails" && next.rank() == next.world_size() - 1 ? 3 : 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
