// SPDX-License-Identifier: Apache-2.0
// The smallest program: every rank brings its own number, every rank gets the sum.
//   rondorun --nproc-per-node 4 all_reduce
#include <cstdio>
#include <exception>
#include <rondo/rondo.hpp>
#include <vector>

int main() {
  try {
    auto comm = rondo::Communicator::from_environment();
    std::vector<float> values(4, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(values, rondo::ReduceOp::sum);
    std::printf("rank %d of %d: the sum is %g\n", comm.rank(), comm.world_size(), static_cast<double>(values[0]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
