// SPDX-License-Identifier: Apache-2.0
// What hosts send each other for a collective: every byte crosses once, however many ranks a host has.
#include <memory>
#include <sstream>

#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

TEST_CASE("each byte crosses between hosts once") {
  if (!namespaces_possible()) return;
  const std::size_t count = GENERATE(2u, 3u);
  const Host bridge;
  const std::deque<Host> hosts(count);
  connect_all(bridge, hosts);
  const SecretFile secret("traffic");
  std::vector<std::unique_ptr<Running>> launchers;
  for (std::size_t i = 0; i < count; ++i) {
    hosts[i].add_address("10.77.0." + std::to_string(i + 1) + "/24");
    launchers.push_back(std::make_unique<Running>(hosts[i].inside(rondorun(
        {"--nnodes", std::to_string(count), "--node-rank", std::to_string(i), "--nproc-per-node", "2", "--master-addr",
         "10.77.0.1", "--secret-file", secret.path, "--join-timeout", "20", tool("traffic")}))));
  }
  // Of all hosts together; the bound is what crosses, in payloads.
  const auto others = static_cast<double>(count - 1);
  const std::pair<const char*, double> bounds[] = {{"all_reduce ", 2 * others},
                                                   {"reduce ", others},
                                                   {"broadcast ", others},
                                                   {"all_gather ", others},
                                                   {"reduce_scatter ", others}};
  constexpr double kHeaders = 1.05;  // of steps and packets, acknowledgements, barriers
  for (const auto& [collective, crossings] : bounds) {
    double payload = 0, total = 0;
    for (const auto& launcher : launchers) {
      double sent = 0;
      std::istringstream(launcher->lines(collective, 1).front()) >> payload >> sent;
      total += sent;
    }
    CAPTURE(count, collective, payload, total);
    CHECK(total > crossings * payload);
    CHECK(total < crossings * payload * kHeaders);
  }
  for (const auto& launcher : launchers) {
    const auto ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
}
