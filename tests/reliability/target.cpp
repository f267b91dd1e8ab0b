// SPDX-License-Identifier: Apache-2.0
// A rank of a job in which somebody is killed: target COLLECTIVE PHASE VICTIM COUNT [NODE]. PHASE, what all do when it
// is: "calling" the collective again and again; "waiting" in it for the victim, which is not; "computing", with a look
// at the communicator every ms; "windows": calling, on windows. Says who blames whom, and when.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "tests/support/spoken.hpp"

namespace {

using rondo::test::now_us;
using rondo::test::say;

struct Buffers {
  float *send, *recv;
};

void call(rondo::Communicator& comm, rondo::Collective collective, Buffers buffers, std::size_t count) {
  const bool message = collective == rondo::Collective::send || collective == rondo::Collective::recv;
  const int world = comm.world_size();
  if (message) {
    auto group = comm.group();  // round the ring
    group.send(std::span(buffers.send, count), (comm.rank() + 1) % world);
    group.recv(std::span(buffers.recv, count), (comm.rank() + world - 1) % world);
    return group.end();
  }
  const std::vector<std::size_t> counts(static_cast<std::size_t>(world), count);
  comm.submit({.collective = collective,
               .send = buffers.send,
               .recv = buffers.recv,
               .count = count,
               .dtype = rondo::DataType::f32,
               .root = 0,
               .send_counts = counts,
               .recv_counts = counts});
}

[[noreturn]] void compute(rondo::Communicator& comm) {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // what a program would compute
    comm.check();
  }
}

[[noreturn]] void go_on(rondo::Communicator& comm, rondo::Collective collective, std::string_view phase, int victim,
                        std::size_t count) {
  const std::size_t all = count * static_cast<std::size_t>(comm.world_size());
  std::vector<float> send(all, 1.0F), recv(all);
  rondo::Window<float> send_window, recv_window;
  Buffers buffers{send.data(), recv.data()};
  if (phase == "windows") {
    send_window = comm.allocate<float>(all);
    recv_window = comm.allocate<float>(all);
    buffers = {send_window.data(), recv_window.data()};
  }
  call(comm, collective, buffers, count);
  comm.barrier();
  say(fmt::format("joined {} {}", comm.rank(), ::getpid()));
  if (phase == "waiting" && comm.rank() == victim)
    for (;;) ::pause();
  if (phase == "computing") compute(comm);
  for (;;) call(comm, collective, buffers, count);
}

}  // namespace

int main(int count, char** argv) {
  if (count < 5) return 2;
  try {
    auto comm =
        rondo::Communicator::from_environment({.timeout = std::chrono::seconds(20), .node = count > 5 ? argv[5] : ""});
    const int rank = comm.rank();
    try {
      for (const auto& row : rondo::collective_table())
        if (row.name == argv[1]) go_on(comm, row.collective, argv[2], std::stoi(argv[3]), std::stoul(argv[4]));
    } catch (const rondo::Error& error) {
      say(fmt::format("error {} {} {} {}", now_us(), rank, error.culprit(), error.what()));
      return 1;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 2;
}
