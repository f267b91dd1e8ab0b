// SPDX-License-Identifier: Apache-2.0
// So many calls of one thread that wait for nobody, for call_cost.sh: all_reduces of two floats by one rank, or
// messages of as many between two.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include <rondo/communicator.hpp>

namespace {

bool reduce(long calls) {
  auto ranks = rondo::Communicator::local(1);
  std::vector<float> values(2, 1.0F);
  for (long i = 0; i < calls; ++i) ranks.front().all_reduce(values, rondo::ReduceOp::sum);
  return values.front() == 1.0F;
}

bool send_and_receive(long calls) {
  auto ranks = rondo::Communicator::local(2);
  std::vector<float> sent(2, 1.0F), received(2);
  for (long i = 0; i < calls; ++i) {
    ranks[0].send(sent, 1);
    ranks[1].recv(received, 0);
  }
  return received == sent;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const long calls = argc == 3 ? std::strtol(argv[2], nullptr, 10) : 0;
    const bool messages = argc == 3 && std::string_view(argv[1]) == "message";
    return (messages ? send_and_receive(calls) : reduce(calls)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
