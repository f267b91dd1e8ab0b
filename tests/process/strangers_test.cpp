// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of a job: it meets as fast as without them, however few descriptors its ranks may have, keeps
// none of theirs, and says little of them.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>

#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/flood.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int kRanks = 4;
constexpr std::size_t kStrangers = 6000;
constexpr long kMeetsWithinMs = 2000;
constexpr std::size_t kMayHoldForStrangers =
    32;  // while they are there: 16 that say nothing, 16 that are being refused

std::uint16_t free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator begin("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

// Looks until it is so few, for some seconds.
bool falls_to(pid_t pid, std::size_t few) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (descriptors_of(pid) > few) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

// Ranks by hand, of which each may open `files` files.
struct Job {
  std::deque<Running> ranks;
  // `wait`: after rank 0 was started.
  template <class Wait>
  Job(const std::string& files, std::uint16_t port, std::uint16_t first_of_ranks, const SecretFile& secret, Wait wait) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == 1) wait();
      ranks.emplace_back(
          std::vector<std::string>{tool("limited"), "nofile", files, tool("flooded")},
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

}  // namespace

TEST_CASE("a job meets beside strangers, however few descriptors it may have, and keeps none of theirs") {
  const std::string files = GENERATE("64", "256", "1024");
  const auto says = GENERATE(Flood::Says::nothing, Flood::Says::garbage);
  CAPTURE(files, static_cast<int>(says));
  const SecretFile secret("strangers");
  std::vector<std::size_t> quiet;
  {
    Job job(files, free_port(), free_port(), secret, [] {});
    job.meets_within_ms();
    for (const Running& rank : job.ranks) quiet.push_back(descriptors_of(rank.pid()));
  }
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  std::vector<std::uint16_t> ports{port, port, port};
  for (int i = 0; i <= 2 * kRanks; ++i) ports.push_back(static_cast<std::uint16_t>(first_of_ranks + i));
  auto flood = std::make_unique<Flood>(ports, kStrangers, says);
  const auto begun = std::chrono::steady_clock::now();
  Job job(files, port, first_of_ranks, secret, [&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (flood->connected() < kStrangers / 2) {
      if (std::chrono::steady_clock::now() > until) FAIL("only " << flood->connected() << " strangers got through");
      std::this_thread::yield();
    }
  });
  CHECK(job.meets_within_ms() < kMeetsWithinMs);
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    CHECK(descriptors_of(job.ranks[i].pid()) <= quiet[i] + kMayHoldForStrangers);
  }
  CHECK(flood->met() > 0);
  flood.reset();
  for (std::size_t i = 0; i < job.ranks.size(); ++i) CHECK(falls_to(job.ranks[i].pid(), quiet[i]));
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begun;
  for (Running& rank : job.ranks) rank.signal(SIGTERM);
  for (Running& rank : job.ranks) {
    const auto ended = rank.wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    const auto lines = std::count(ended.err.begin(), ended.err.end(), '\n');
    CHECK(static_cast<double>(lines) < 10 + 4 * lasted.count());
  }
}
