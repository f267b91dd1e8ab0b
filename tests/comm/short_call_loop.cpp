// SPDX-License-Identifier: Apache-2.0
// So many all_reduces of two floats by one rank, for call_cost.sh.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <rondo/communicator.hpp>

int main(int argc, char** argv) {
  try {
    const long calls = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
    auto ranks = rondo::Communicator::local(1);
    std::vector<float> values(2, 1.0F);
    for (long i = 0; i < calls; ++i) ranks.front().all_reduce(values, rondo::ReduceOp::sum);
    return values.front() == 1.0F ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
