// SPDX-License-Identifier: Apache-2.0
// Jobs of several hosts whose network loses packets, delays them, or is cut.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <iostream>
#include <memory>

#include "tests/process/network.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

sockaddr_in address_of(std::size_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, Network::address(host).c_str(), &address.sin_addr);
  return address;
}

// Ranks by hand, one on each host and two on the first.
class Job {
 public:
  Job(const Network& network, const std::string& mode, std::chrono::milliseconds duration,
      const Words& environment = {}) {
    const std::size_t world_size = network.size() + 1;
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      const std::size_t host = rank == network.size() ? 0 : rank;
      const Words words{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size),
                        "MASTER_ADDR=" + Network::address(0), "MASTER_PORT=29500",
                        "RONDO_SECRET_FILE=" + secret_.path.string()};
      ranks_.push_back(std::make_unique<Running>(
          network.host(host).inside(
              {tool("patient"), mode, fmt::format("{}", static_cast<double>(duration.count()) / 1e3)}),
          Running::How{.environment = words + environment,
                       .limit = 60s + std::chrono::ceil<std::chrono::seconds>(duration)}));
    }
  }
  void await_start() {
    for (auto& rank : ranks_) rank->lines("joined ", 1);
  }
  std::vector<Ended> wait() {
    std::vector<Ended> all;
    for (auto& rank : ranks_) all.push_back(rank->wait());
    return all;
  }
  Running& rank(std::size_t i) { return *ranks_[i]; }

 private:
  SecretFile secret_{"network"};
  std::vector<std::unique_ptr<Running>> ranks_;
};

void check_success(const std::vector<Ended>& all) {
  for (const Ended& ended : all) {
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("done ") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("the network loses what it is told to lose, both ways") {
  if (!networks_possible()) return;
  Network network(2, 7);
  constexpr std::uint16_t kPort = 4000;  // of the hosts' own
  constexpr int kSent = 1000, kAtOnce = 100;
  constexpr int kSilenceMs = 200;
  rondo::Fd ends[2];
  for (std::size_t i = 0; i < 2; ++i) {
    ends[i] = network.host(i).make_here([] { return rondo::Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); });
    const sockaddr_in here = address_of(i, kPort);
    REQUIRE(::bind(ends[i].get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0);
  }
  const auto share_received = [&](std::size_t from) {
    const sockaddr_in there = address_of(1 - from, kPort);
    int received = 0;
    for (int sent = 0; sent < kSent; sent += kAtOnce) {  // fewer than any queue holds
      for (int i = 0; i < kAtOnce; ++i)
        ::sendto(ends[from].get(), &i, sizeof i, 0, reinterpret_cast<const sockaddr*>(&there), sizeof there);
      pollfd polled{ends[1 - from].get(), POLLIN, 0};
      for (int got = 0; got < kAtOnce && ::poll(&polled, 1, kSilenceMs) == 1; ++got) {
        int word = 0;
        received += ::recv(ends[1 - from].get(), &word, sizeof word, MSG_DONTWAIT) == sizeof word ? 1 : 0;
      }
    }
    return static_cast<double>(received) / kSent;
  };
  CHECK(share_received(0) > 0.99);
  CHECK(share_received(1) > 0.99);
  network.set({.loss = 0.3});
  for (const std::size_t from : {0u, 1u}) {
    const double share = share_received(from);
    CHECK(share > 0.63);
    CHECK(share < 0.77);
  }
  network.cut(1, true);
  CHECK(share_received(0) == 0);
  CHECK(share_received(1) == 0);
  network.cut(1, false);
  network.set({.delay = 30ms});
  const auto begin = Clock::now();
  CHECK(share_received(0) > 0.99);
  CHECK(Clock::now() - begin >= 30ms);
}

TEST_CASE("a job outlives delay that lets packets overtake each other") {
  if (!networks_possible()) return;
  Network network(3, 10);
  Job job(network, "busy", 3s);
  job.await_start();
  network.set({.delay = 50ms, .jitter = 20ms});
  check_success(job.wait());
}
