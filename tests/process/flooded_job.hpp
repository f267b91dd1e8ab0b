// SPDX-License-Identifier: Apache-2.0
// A job whose ports strangers know.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>

#include "comm/base/fd.hpp"
#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"

namespace rondo::test {

inline std::uint16_t free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no port is free");
  return ntohs(address.sin_port);
}

// Ranks by hand, of which each may open `files` files, at `port` and ports from `first_of_ranks` on.
struct FloodedJob {
  static constexpr int kRanks = 4;
  std::deque<Running> ranks;
  // `wait`: after rank 0 was started.
  template <class Wait>
  FloodedJob(const std::string& files, std::uint16_t port, std::uint16_t first_of_ranks, const SecretFile& secret,
             Wait wait, const std::string& program = tool("flooded")) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == 1) wait();
      ranks.emplace_back(
          std::vector<std::string>{tool("limited"), "nofile", files, program},
          Running::How{.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kRanks),
                                       "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=" + std::to_string(port),
                                       "RONDO_PORT_RANGE=" + std::to_string(first_of_ranks) + "-" +
                                           std::to_string(first_of_ranks + 2 * kRanks),
                                       "RONDO_SECRET_FILE=" + secret.path.string(), "RONDO_TRANSPORT=tcp",
                                       "RONDO_LOG=info"}});
    }
  }
  long meets_within_ms() {  // as the slowest of those that came later says
    long most = 0;
    for (Running& rank : ranks) {
      const long ms = std::stol(rank.lines("met within ", 1).front());
      if (&rank != &ranks.front()) most = std::max(most, ms);
    }
    return most;
  }
};

}  // namespace rondo::test
