// SPDX-License-Identifier: Apache-2.0
// A rank that survives: reduces until a rank is lost, then goes on with those that are left. shrinker [HOW [RANKS]],
// which are spawned where their number is given: "late": it computes for longer first than a launcher waits. "fails":
// the last rank of those that are left exits with code 3. "never": it does not go on. "deadline": a call takes at most
// a second. It says when it knew of the loss, and when it had reduced without who was.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "tests/support/spoken.hpp"

namespace {

using rondo::test::now_us;
using rondo::test::say;

// Returns the rank's exit code.
int survive(rondo::Communicator& comm, std::string_view how) {
  comm.set_timeout(std::chrono::seconds(how == "deadline" ? 1 : 60));
  std::vector<int> ones(100'000, 1);
  comm.barrier();
  say(fmt::format("joined {} {}", comm.rank(), ::getpid()));
  long long lost_us = 0;
  try {
    for (;;) comm.all_reduce(ones, rondo::ReduceOp::max);
  } catch (const rondo::Error& error) {
    lost_us = now_us();
    say(fmt::format("lost {}", error.culprit()));
  }
  if (how == "never") ::pause();
  if (how == "late") std::this_thread::sleep_for(std::chrono::milliseconds(600));
  auto next = comm.shrink();
  next.all_reduce(ones, rondo::ReduceOp::sum);
  say(fmt::format("took {} us from {}", now_us() - lost_us, lost_us));
  const auto half = next.split(next.rank() % 2, 0);
  say(fmt::format("shrunk rank {} of {}, sum {}, split {}", next.rank(), next.world_size(), ones.front(),
                  half.world_size()));
  return how == "fails" && next.rank() == next.world_size() - 1 ? 3 : 0;
}

}  // namespace

int main(int count, char** argv) {
  const std::string_view how = count > 1 ? argv[1] : "";
  try {
    if (count > 2) {
      return rondo::spawn(std::atoi(argv[2]), [&](rondo::Communicator& comm) {
        if (const int code = survive(comm, how); code != 0) ::_exit(code);
      });
    }
    auto comm = rondo::Communicator::from_environment({.join_timeout = std::chrono::seconds(20)});
    return survive(comm, how);
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
