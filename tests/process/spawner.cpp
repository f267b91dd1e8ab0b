// SPDX-License-Identifier: Apache-2.0
// A program that spawns ranks: spawner WORLD_SIZE MODE. Rank 1, or the last, is the one that misbehaves.
#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

void reduce_once(rondo::Communicator& communicator) {
  std::vector<float> data(1000, static_cast<float>(communicator.rank() + 1));
  communicator.all_reduce(data, rondo::ReduceOp::sum);
  const int world_size = communicator.world_size();
  const auto expected = static_cast<float>(world_size * (world_size + 1) / 2);
  for (const float value : data)
    if (value != expected) throw std::runtime_error("wrong sum");
}

void reduce_for_ever(rondo::Communicator& communicator) {
  for (;;) reduce_once(communicator);
}

void misbehave(rondo::Communicator& communicator, const std::string& mode) {
  if (mode == "throw") throw std::runtime_error("out of paper");
  if (mode == "exit") ::_exit(7);
  if (mode == "kill") ::kill(::getpid(), SIGKILL);
  if (mode == "mismatch") {
    std::vector<float> data(999);
    communicator.all_reduce(data, rondo::ReduceOp::sum);
  }
}

}  // namespace

int main(int, char** argv) {
  const int world_size = std::atoi(argv[1]);
  const std::string mode = argv[2];
  return rondo::spawn(world_size, [&](rondo::Communicator& communicator) {
    if (communicator.world_size() != world_size) throw std::runtime_error("wrong world size");
    reduce_once(communicator);
    say("pid " + std::to_string(::getpid()));
    if (mode == "reduce") return say("rank " + std::to_string(communicator.rank()) + " is done");
    if (mode != "stay" && communicator.rank() == std::min(1, world_size - 1)) misbehave(communicator, mode);
    if (mode == "exit") ::pause();  // nothing but a signal ends the others
    try {
      reduce_for_ever(communicator);
    } catch (const std::exception& error) {
      say("rank " + std::to_string(communicator.rank()) + " noticed: " + error.what());
      throw;
    }
  });
}
