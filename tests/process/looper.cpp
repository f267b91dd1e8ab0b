// SPDX-License-Identifier: Apache-2.0
// A rank of a job that calls one collective for ever: looper COLLECTIVE [NODE [COUNT]]. Says when it is through with
// the first call, and what ended it. Ranks that give the same NODE share memory.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

constexpr std::size_t kBlock = 400'000;  // more chunks than a rank may be ahead of the others

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

void loop(rondo::Communicator& comm, rondo::Collective collective, std::size_t block) {
  const auto world = static_cast<std::size_t>(comm.world_size());
  std::vector<float> send(block * world, 1.0F), recv(block * world);
  const std::vector<std::size_t> counts(world, block);
  const bool message = collective == rondo::Collective::send || collective == rondo::Collective::recv;
  const auto call = [&] {
    if (!message) {
      return comm.submit({.collective = collective,
                          .send = send.data(),
                          .recv = recv.data(),
                          .count = block,
                          .dtype = rondo::DataType::f32,
                          .root = 0,
                          .send_counts = counts,
                          .recv_counts = counts});
    }
    auto group = comm.group();  // round the ring, both directions of the pair at once
    group.send(std::span(send).first(block), (comm.rank() + 1) % comm.world_size());
    group.recv(std::span(recv).first(block), (comm.rank() + comm.world_size() - 1) % comm.world_size());
    group.end();
  };
  call();
  say(fmt::format("joined {} {}", comm.rank(), ::getpid()));
  for (;;) call();
}

}  // namespace

int main(int count, char** argv) {
  try {
    auto comm =
        rondo::Communicator::from_environment({.timeout = std::chrono::seconds(20), .node = count > 2 ? argv[2] : ""});
    for (const auto& row : rondo::collective_table()) {
      if (row.name == argv[1]) loop(comm, row.collective, count > 3 ? std::stoul(argv[3]) : kBlock);
    }
    return 2;
  } catch (const std::exception& error) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    say(fmt::format("error at {} {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                    error.what()));
    return 1;
  }
}
