// SPDX-License-Identifier: Apache-2.0
// The least program, compiled by hand with what pkg-config says.
#include <cstdio>
#include <rondo/rondo.hpp>
#include <vector>

int main() {
  auto ranks = rondo::Communicator::local(1);
  std::vector<float> values(3, 2.0F);
  ranks.front().all_reduce(values, rondo::ReduceOp::sum);
  std::printf("%g\n", static_cast<double>(values[0]));
}
