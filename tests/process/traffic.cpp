// SPDX-License-Identifier: Apache-2.0
// A rank that runs each of a few collectives, long ones, and says how many bytes its host has sent for it, without what
// TCP took for lost and sent again: "COLLECTIVE PAYLOAD SENT", where PAYLOAD counts the larger buffer of a rank.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using enum rondo::Collective;

// Of this network namespace. A busy host retransmits now and then, up to a twentieth of a call.
unsigned long long bytes_sent_again() {
  constexpr unsigned long long kSegment = 1448;
  std::ifstream file("/proc/self/net/snmp");
  for (std::string line; std::getline(file, line);) {
    unsigned long long segments = 0;
    if (std::sscanf(line.c_str(), "Tcp: %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %llu", &segments) == 1)
      return segments * kSegment;
  }
  return 0;
}

// Of the one interface that this network namespace has besides loopback.
unsigned long long bytes_sent() {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    unsigned long long received = 0, sent = 0;
    if (std::sscanf(line.c_str(), " eth0: %llu %*u %*u %*u %*u %*u %*u %*u %llu", &received, &sent) == 2)
      return sent - bytes_sent_again();
  }
  return 0;
}

}  // namespace

int main() {
  auto comm = rondo::Communicator::from_environment({.timeout = std::chrono::seconds(20)});
  const auto world = static_cast<std::size_t>(comm.world_size());
  const std::size_t block = 300'000, all = block * world;
  std::vector<float> send(all, 1.0F), recv(all);
  for (const auto collective : {all_reduce, reduce, broadcast, all_gather, reduce_scatter}) {
    const bool blocks = collective == all_gather || collective == reduce_scatter;
    comm.barrier();
    const auto before = bytes_sent();
    comm.barrier();  // whatever this host's other ranks send, they send after it was read
    for (int call = 0; call < 4; ++call) {
      comm.submit({.collective = collective,
                   .send = send.data(),
                   .recv = recv.data(),
                   .count = blocks ? block : all,
                   .dtype = rondo::DataType::f32,
                   .root = static_cast<int>(world) - 1});
    }
    comm.barrier();
    if (comm.local_rank() != 0) continue;
    std::printf("%s %zu %llu\n", std::string(name_of(collective)).c_str(), 4 * all * sizeof(float),
                bytes_sent() - before);
    std::fflush(stdout);
  }
}
