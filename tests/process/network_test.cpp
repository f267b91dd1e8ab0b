// SPDX-License-Identifier: Apache-2.0
// Jobs of several hosts whose network loses packets, delays them, or is cut.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "comm/base/pulse.hpp"
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
      const Words& environment = {})
      : Job(network, {tool("patient"), mode, fmt::format("{}", static_cast<double>(duration.count()) / 1e3)},
            environment, 60s + std::chrono::ceil<std::chrono::seconds>(duration)) {}
  // With `server`, at one that is no rank's own and outlives them, on the first host.
  Job(const Network& network, const Words& program, const Words& environment, std::chrono::seconds limit,
      bool server = false) {
    if (server) serve(network);
    const std::size_t world_size = network.size() + 1;
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      const std::size_t host = rank == network.size() ? 0 : rank;
      const Words words{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size),
                        "MASTER_ADDR=" + Network::address(0), "MASTER_PORT=29500",
                        "RONDO_SECRET_FILE=" + secret_.path.string()};
      ranks_.push_back(std::make_unique<Running>(network.host(host).inside(program),
                                                 Running::How{.environment = words + environment, .limit = limit}));
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
  void serve(const Network& network) {
    const Words command{tool("rondo-rendezvous"), "--bind", Network::address(0), "--secret-file",
                        secret_.path.string()};
    server_ = std::make_unique<Running>(network.host(0).inside(command), Running::How{.one_stream = true});
    server_->lines(Network::address(0) + ":", 1);
  }

  SecretFile secret_{"network"};
  std::unique_ptr<Running> server_;
  std::vector<std::unique_ptr<Running>> ranks_;
};

void check_success(const std::vector<Ended>& all) {
  for (const Ended& ended : all) {
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("done ") != std::string::npos);
  }
}

// Cuts every host in turn, for half of the time.
void flap(Network& network, std::chrono::milliseconds cut, Clock::time_point until) {
  for (std::size_t host = 0; Clock::now() < until; host = (host + 1) % network.size()) {
    network.cut(host, true);
    std::this_thread::sleep_for(cut);
    network.cut(host, false);
    std::this_thread::sleep_for(cut);
  }
}

struct Verdict {
  double after_s = 0;
  int culprit = -1;
  std::string sentence;
};
Verdict verdict_of(Running& rank, Clock::time_point cut_at) {
  Verdict verdict;
  long long at_us = 0;
  std::istringstream words(rank.lines("error ", 1).front());
  words >> at_us >> verdict.culprit;
  std::getline(words, verdict.sentence);
  const auto cut_us = std::chrono::duration_cast<std::chrono::microseconds>(cut_at.time_since_epoch()).count();
  verdict.after_s = static_cast<double>(at_us - cut_us) / 1e6;
  return verdict;
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

TEST_CASE("a job outlives packets lost") {
  if (!networks_possible()) return;
  // Of 30 %, an idle job with fewer connections to probe by would not live so long; one that waits says so, and has one
  // connection less while that is under way. Then the weather clears: TCP doubles its pauses, and where a segment or
  // its answer is lost half of the time they have no mean.
  const auto [mode, loss] = GENERATE(table<std::string, double>({{"idle", 0.3}, {"busy", 0.1}, {"wait", 0.2}}));
  CAPTURE(mode, loss);
  Network network(3, 11);
  Job job(network, mode, 15s);
  job.await_start();
  network.set({.loss = loss});
  std::this_thread::sleep_for(15s);
  network.set({});
  check_success(job.wait());
  CHECK(network.lost() > 0);
}

// The longest packets that get through: probes and answers, or control messages, too.
constexpr std::size_t kBare = 94, kShort = 900;

// Who closed its sockets before would reset them, or the kernel would soon give up what is under way on them. Those
// that wait for it would take its sender for lost.
TEST_CASE("who leaves stays until what it sent has arrived, however long that takes") {
  if (!networks_possible()) return;
  const auto [program, longest] = GENERATE(table<Words, std::size_t>({{{tool("patient"), "left", "1"}, kBare},
                                                                      {{tool("patient"), "left", "1"}, kShort},
                                                                      {{tool("device_leaver")}, kBare}}));
  CAPTURE(program, longest);
  Network network(2, 24);
  network.set_sysctl("net/ipv4/tcp_orphan_retries", "1");
  Job job(network, program, {}, 60s);
  job.await_start();
  network.set({.loss = 0, .longest = longest});
  std::this_thread::sleep_for(5 * rondo::kLinkPatience);
  network.set({});
  check_success(job.wait());
}

TEST_CASE("who aborts and ends is not taken for lost, however long its word takes") {
  if (!networks_possible()) return;
  Network network(2, 25);
  network.set_sysctl("net/ipv4/tcp_orphan_retries", "1");
  Job job(network, "abort", 1s);
  job.await_start();
  network.set({.loss = 0, .longest = kBare});
  std::this_thread::sleep_for(5 * rondo::kLinkPatience);
  network.set({});
  CHECK(job.rank(1).wait().code == 0);
  for (const std::size_t rank : {0u, 2u})
    CHECK(job.rank(rank).lines("error ", 1).front().find("rank 1 called abort()") != std::string::npos);
}

TEST_CASE("a job outlives cuts that are shorter than its patience, and what was under way arrives") {
  if (!networks_possible()) return;
  const std::string mode = GENERATE("idle", "busy");
  CAPTURE(mode);
  Network network(3, 12);
  Job job(network, mode, 8s);
  job.await_start();
  flap(network, rondo::kLinkPatience * 9 / 10, Clock::now() + 8s);
  check_success(job.wait());
  CHECK(network.lost() > 0);
}

TEST_CASE("a host that is cut off is named within 3 s by every rank, itself included") {
  if (!networks_possible()) return;
  const std::string mode = GENERATE("idle", "busy", "wait");
  const std::size_t cut = GENERATE(1u, 2u);
  CAPTURE(mode, cut);
  Network network(3, 13);
  Job job(network, mode, 60s);
  job.await_start();
  const auto cut_at = Clock::now();
  network.cut(cut, true);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const Verdict verdict = verdict_of(job.rank(rank), cut_at);
    CAPTURE(rank, verdict.sentence);
    CHECK(verdict.culprit == static_cast<int>(cut));
    CHECK(verdict.after_s > 1.7);
    CHECK(verdict.after_s < 3);
    const char* says = rank == cut ? "is cut off from all other hosts" : "is lost: its host has not answered for";
    CHECK(verdict.sentence.find(says) != std::string::npos);
  }
}

TEST_CASE("a killed rank of another host is named at once, on a network that loses packets, too") {
  if (!networks_possible()) return;
  const bool lossy = GENERATE(false, true);
  CAPTURE(lossy);
  Network network(3, 14);
  Job job(network, "wait", 60s);
  job.await_start();
  if (lossy) network.set({.loss = 0.1});
  const auto killed_at = Clock::now();
  ::kill(std::stoi(job.rank(2).lines("joined ", 1).front()), SIGKILL);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    const Verdict verdict = verdict_of(job.rank(rank), killed_at);
    CAPTURE(rank, verdict.sentence);
    CHECK(verdict.culprit == 2);
    CHECK(verdict.after_s < (lossy ? 1.0 : 0.1));
  }
}

// No other rank has a connection with it yet, and none of its host is left to see its end.
TEST_CASE("who dies while others make their first communicator is named within 5 s, alone on a host, too") {
  if (!networks_possible()) return;
  const bool server = GENERATE(false, true);
  CAPTURE(server);
  Network network(3, 20);
  Job job(network, {tool("meeter"), "2"}, {}, 90s, server);
  CHECK(job.rank(2).wait().signal == SIGKILL);
  const auto died_at = Clock::now();
  for (const std::size_t rank : {0u, 1u, 3u}) {
    const Verdict verdict = verdict_of(job.rank(rank), died_at);
    CAPTURE(rank, verdict.sentence);
    CHECK(verdict.culprit == 2);
    CHECK(verdict.after_s < 5);  // and not the 60 s of joining
    CHECK(verdict.sentence.find("rank 2 (host ") != std::string::npos);
    CHECK(verdict.sentence.find("was lost: ") != std::string::npos);
  }
}

// Rank 1 reaches all but rank 2, with which ranks 0 and 3 are done.
TEST_CASE("who dies when some have the first communicator already is named to those who wait for it") {
  if (!networks_possible()) return;
  Network network(3, 21);
  network.part(1, 2);
  Job job(network, {tool("meeter"), "-1"}, {}, 90s, true);
  for (const std::size_t rank : {0u, 3u}) job.rank(rank).lines("made", 1);
  const int pid = std::stoi(job.rank(2).lines("begun ", 1).front());
  const auto killed_at = Clock::now();
  ::kill(pid, SIGKILL);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    const Verdict verdict = verdict_of(job.rank(rank), killed_at);
    CAPTURE(rank, verdict.sentence);
    CHECK(verdict.culprit == 2);
    CHECK(verdict.after_s < 5);  // and not the 60 s of joining
  }
}

TEST_CASE("a stopped rank of another host is not lost, on a network that loses packets, too") {
  if (!networks_possible()) return;
  Network network(3, 15);
  Job job(network, "busy", 8s);
  job.await_start();
  network.set({.loss = 0.05});
  const int pid = std::stoi(job.rank(1).lines("joined ", 1).front());
  ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(2 * rondo::longest_silence(rondo::kLinkPatience));
  ::kill(pid, SIGCONT);
  check_success(job.wait());
}

TEST_CASE("a kernel that gives connections up early ends no job that is more patient") {
  if (!networks_possible()) return;
  Network network(2, 16);
  network.set_sysctl("net/ipv4/tcp_retries2", "1");
  Job job(network, "busy", 5s, {"RONDO_LINK_PATIENCE_MS=6000"});
  job.await_start();
  network.cut(1, true);
  std::this_thread::sleep_for(4s);
  network.cut(1, false);
  check_success(job.wait());
}

// Cuts the last host and says how long the slowest of the others took from its error to their first sum, in ms.
double time_of_shrink(unsigned seed) {
  Network network(3, seed);
  Job job(network, {tool("shrinker")}, {"RONDO_LINK_PATIENCE_MS=1500"}, 30s);
  job.await_start();
  network.cut(2, true);
  double worst_ms = 0;
  for (const std::size_t rank : {0u, 1u, 3u}) {
    worst_ms = std::max(worst_ms, std::stod(job.rank(rank).lines("took ", 1).front()) / 1e3);
    CHECK(job.rank(rank).lines("shrunk ", 1).front().find(" of 3, sum 3") != std::string::npos);
  }
  return worst_ms;
}

TEST_CASE("survivors do not wait for a host that is cut off") {
  if (!networks_possible()) return;
  CHECK(time_of_shrink(18) < 3000);  // and not the 20 s of joining, or the 7 s until the server knows
}

// Rank 0 serves, and rank 3 on its host could in its place.
TEST_CASE("survivors are told at once that no rank is left on the host where the job meets") {
  if (!networks_possible()) return;
  Network network(3, 19);
  Job job(network, {tool("shrinker")}, {}, 30s);
  job.await_start();
  for (const std::size_t rank : {3u, 0u}) job.rank(rank).signal(SIGKILL);
  for (const std::size_t rank : {1u, 2u}) {
    const Ended ended = job.rank(rank).wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.out.find("served the rendezvous of this job, and no rank of its host is left") != std::string::npos);
    CHECK(ended.seconds < 12);  // and not the 20 s of joining, which is the deadline
  }
}

// The figure: network_test "[.long]" prints it.
TEST_CASE("the time that shrinking takes after a cut", "[.long]") {
  if (!networks_possible()) return;
  constexpr unsigned kTimes = 11;
  std::vector<double> times;
  for (unsigned i = 0; i < kTimes; ++i) times.push_back(time_of_shrink(i));
  std::sort(times.begin(), times.end());
  std::cout << fmt::format("a cut host: median {:.1f} ms, worst {:.1f} ms\n", times[kTimes / 2], times.back())
            << std::flush;
}

// The figure: network_test "[.long]" prints it. RONDO_TEST_SECONDS: of each row, 60 where it is not set.
TEST_CASE("false alarms, by weather", "[.long]") {
  if (!networks_possible()) return;
  struct Row {
    const char* name;
    Weather weather;
    std::chrono::milliseconds cut{};
  };
  const Row row = GENERATE(Row{"1 % lost", {.loss = 0.01}}, Row{"5 % lost", {.loss = 0.05}},
                           Row{"10 % lost", {.loss = 0.1}}, Row{"50 +- 20 ms", {.delay = 50ms, .jitter = 20ms}},
                           Row{"cuts of half the patience", {}, rondo::kLinkPatience / 2});
  const std::string mode = GENERATE("idle", "busy");
  const char* given = std::getenv("RONDO_TEST_SECONDS");
  const std::chrono::seconds duration(given != nullptr ? std::atoi(given) : 60);
  Network network(3, 17);
  Job job(network, mode, duration);
  job.await_start();
  network.set(row.weather);
  if (row.cut.count() > 0) flap(network, row.cut, Clock::now() + duration);
  const auto all = job.wait();
  check_success(all);
  const auto alarms = std::count_if(all.begin(), all.end(), [](const Ended& ended) { return ended.code != 0; });
  const std::string& out = all[0].out;
  const auto calls = out.find("done ") == std::string::npos ? 0 : std::stol(out.substr(out.find("done ") + 5));
  std::cout << fmt::format("{:26} {} {:4} s {:8} calls {:9} packets lost {:6} false alarms {}\n", row.name, mode,
                           duration.count(), 2 * calls, network.carried(), network.lost(), alarms)
            << std::flush;
}
