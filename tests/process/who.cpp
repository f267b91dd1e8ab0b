// SPDX-License-Identifier: Apache-2.0
// A rank that says which one it is, and that all are there: the sum of all ranks' numbers, from 1.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <rondo/rondo.hpp>

int main() {
  try {
    auto communicator = rondo::Communicator::from_environment();
    int sum = communicator.rank() + 1;
    communicator.all_reduce(std::span(&sum, 1), rondo::ReduceOp::sum);
    // A launcher on each of two nodes that are one machine counts its own, and the library those of the machine.
    const char* told = std::getenv("LOCAL_RANK");
    const int local = told == nullptr ? communicator.local_rank() : std::stoi(told);
    std::printf("rank %d of %d, local %d: the sum is %d\n", communicator.rank(), communicator.world_size(), local, sum);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
