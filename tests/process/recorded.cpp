// SPDX-License-Identifier: Apache-2.0
// A rank that comes to grief: recorded SCENARIO [GO]; with GO, "mismatch" and "killed" when that file is there. After
// three calls that go well, "mismatch": rank 1 calls something else. "deadline": rank 2 never comes. "throws": rank 2
// leaves by an exception. "killed": rank 2 kills itself. "well": nothing happens. "loops": until it is ended.
// "computes": rank 2 never comes, as it computes, until it is ended.
#include <poll.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Until the test has seen the other ranks in their call.
void wait_for(const char* go) {
  while (go != nullptr && ::access(go, F_OK) != 0) ::poll(nullptr, 0, 1);
}

void run(rondo::Communicator& comm, const std::string& scenario, const char* go) {
  std::vector<float> data(1000, 1.0F);
  for (int i = 0; i < 3; ++i) comm.all_reduce(data, rondo::ReduceOp::sum);
  const int rank = comm.rank();
  say("rank " + std::to_string(rank) + " has begun");
  if ((scenario == "mismatch" && rank == 1) || (scenario == "killed" && rank == 2)) wait_for(go);
  if (scenario == "mismatch" && rank == 1) return comm.broadcast(data, 0);
  if (scenario == "deadline" && rank == 2) ::pause();
  while (scenario == "computes" && rank == 2) comm.rank();
  if (scenario == "throws" && rank == 2) throw std::runtime_error("no more data");
  if (scenario == "killed" && rank == 2) ::kill(::getpid(), SIGKILL);
  while (scenario == "loops") comm.all_reduce(data, rondo::ReduceOp::sum);
  comm.all_reduce(data, rondo::ReduceOp::sum);
  say("rank " + std::to_string(rank) + " is done");
}

}  // namespace

int main(int, char** argv) {
  const std::string scenario = argv[1];
  try {
    auto comm = rondo::Communicator::from_environment(
        {.timeout = std::chrono::milliseconds(scenario == "deadline" ? 400 : 20'000)});
    run(comm, scenario, argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
