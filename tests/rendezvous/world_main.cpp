// SPDX-License-Identifier: Apache-2.0
// One rank, as the environment or a url says: prints "rank of world_size: sum of all ranks".
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include <rondo/rondo.hpp>

int main(int argc, char** argv) {
  try {
    rondo::Rendezvous where;
    if (argc == 4) where = {.rank = std::atoi(argv[2]), .world_size = std::atoi(argv[3]), .url = argv[1]};
    rondo::Options options;
    options.join_timeout = std::chrono::seconds(20);
    for (int turn = 0; turn < (argc == 1 ? 2 : 1); ++turn) {  // a second world from the same environment
      rondo::Communicator world = rondo::Communicator::create(where, options);
      std::array<int, 1> sum = {world.rank()};
      world.all_reduce(sum, rondo::ReduceOp::sum);
      fmt::print("{} of {}: {}\n", world.rank(), world.world_size(), sum[0]);
    }
    return 0;
  } catch (const rondo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
