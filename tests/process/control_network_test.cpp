// SPDX-License-Identifier: Apache-2.0
// The connections of launchers and ranks with the rendezvous server, where the network loses packets or is cut.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <thread>

#include "comm/base/pulse.hpp"
#include "rendezvous/socket.hpp"
#include "tests/process/network.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using rondo::Fd;
using rondo::kLinkPatience;
using rondo::rendezvous::control_patience;

// From host 0 to host 1, with the options of control connections; an accepted one has them from what listened.
struct Pair {
  Fd near, far;
};
Pair connect_over(const Network& network) {
  const auto make = [] { return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); };
  const Fd listening = network.host(1).make_here(make);
  Pair pair{network.host(0).make_here(make), {}};
  for (const int end : {listening.get(), pair.near.get()}) rondo::rendezvous::set_tcp_options(end, kLinkPatience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(4000);  // of the host's own
  ::inet_pton(AF_INET, Network::address(1).c_str(), &address.sin_addr);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  REQUIRE(::bind(listening.get(), where, sizeof address) == 0);
  REQUIRE(::listen(listening.get(), 1) == 0);
  REQUIRE(::connect(pair.near.get(), where, sizeof address) == 0);
  pair.far = Fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair.far);
  return pair;
}

int option(const Fd& socket, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  ::getsockopt(socket.get(), level, name, &value, &bytes);
  return value;
}

// One launcher on each host, as a user starts them.
class Launchers {
 public:
  Launchers(const Network& network, const Words& flags, const Words& program) {
    for (std::size_t host = 0; host < network.size(); ++host) {
      const Words command = rondorun({"--nnodes", std::to_string(network.size()), "--node-rank", std::to_string(host),
                                      "--master-addr", Network::address(0), "--secret-file", secret_.path.string()}) +
                            flags + program;
      launchers_.push_back(std::make_unique<Running>(network.host(host).inside(command), Running::How{.limit = 120s}));
    }
    for (auto& launcher : launchers_) launcher->lines("joined", 1);
  }
  Running& operator[](std::size_t host) { return *launchers_[host]; }

 private:
  SecretFile secret_{"control"};
  std::vector<std::unique_ptr<Running>> launchers_;
};

}  // namespace

TEST_CASE("a control connection waits long and asks often, at both ends") {
  if (!networks_possible()) return;
  Network network(2, 21);
  const Pair pair = connect_over(network);
  for (const Fd* end : {&pair.near, &pair.far}) {
    CHECK(option(*end, SOL_SOCKET, SO_KEEPALIVE) == 1);
    // From the first probe to the last: 15 of which one must get through.
    CHECK(option(*end, IPPROTO_TCP, TCP_KEEPINTVL) == 1);
    CHECK(option(*end, IPPROTO_TCP, TCP_USER_TIMEOUT) - 1000 * option(*end, IPPROTO_TCP, TCP_KEEPIDLE) >= 15'000);
  }
  CHECK(control_patience(10s) == 40s);  // cuts of 10 s, after which what was under way is sent again
  CHECK(control_patience(600s) > 600s);
  // With pauses that double from the first on it would have been sent 5 times after 3 s, and 6 times after 6 s.
  network.cut(1, true);
  const auto cut_at = Clock::now();
  REQUIRE(::send(pair.near.get(), "x", 1, MSG_NOSIGNAL) == 1);
  tcp_info info{};
  while (info.tcpi_total_retrans < 7 && Clock::now() < cut_at + 20s) {
    std::this_thread::sleep_for(10ms);
    socklen_t bytes = sizeof info;
    REQUIRE(::getsockopt(pair.near.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0);
  }
  CHECK(info.tcpi_total_retrans == 7);
  CHECK(Clock::now() - cut_at < 6s);
}

TEST_CASE("a job that is idle outlives a cut that is shorter than what --link-patience says", "[.full]") {
  if (!networks_possible()) return;
  Network network(2, 22);
  Launchers launchers(network, {"--link-patience", "15"}, {tool("patient"), "idle", "18"});
  network.cut(1, true);
  std::this_thread::sleep_for(12s);
  network.cut(1, false);
  for (const std::size_t host : {0u, 1u}) {
    const Ended ended = launchers[host].wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("done ") != std::string::npos);
  }
}

TEST_CASE("launchers outlive lost packets, and each names the other when it is cut off", "[.full]") {
  if (!networks_possible()) return;
  Network network(2, 23);
  Launchers launchers(network, {}, {"sh", "-c", "echo joined; sleep 100"});
  network.set({.loss = 0.3});
  std::this_thread::sleep_for(30s);
  network.set({});
  const auto cut_at = Clock::now();
  network.cut(1, true);
  for (const std::size_t host : {0u, 1u}) {
    const Ended ended = launchers[host].wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.err.find(fmt::format("the launcher of node {}", 1 - host)) != std::string::npos);
    CHECK(ended.err.find("its host has not answered for 20 s") != std::string::npos);
    CHECK(Clock::now() - cut_at > 12s);
    CHECK(Clock::now() - cut_at < 30s);
  }
}
