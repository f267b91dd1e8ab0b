// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of a job. How soon does it meet, however few descriptors its ranks have? And how long do its
// calls take, beside the same strangers elsewhere? Those cost the machine as much, and are not the job's doing.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <sstream>
#include <thread>

#include "tests/process/flooded_job.hpp"
#include "tests/reliability/subjects.hpp"
#include "tests/support/flood.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kStrangers = 6000;
constexpr double kMeetsWithinMs = 2000, kMostTimes = 2;
constexpr auto kPhase = 1500ms, kSettles = 300ms;  // of an attack; before it is looked at
constexpr const char* kFiles[] = {"64", "128", "256", "512", "1024", "4096"};
struct Attack {
  const char* name;
  Flood::Says says;
};
constexpr Attack kAttacks[] = {{"nothing", Flood::Says::nothing},
                               {"garbage", Flood::Says::garbage},
                               {"a length of 8 GiB", Flood::Says::length},
                               {"a byte now and then", Flood::Says::drops}};

std::vector<std::uint16_t> ports_of(std::uint16_t port, std::uint16_t first_of_ranks) {
  std::vector<std::uint16_t> ports{port, port, port};
  for (int i = 0; i <= 2 * FloodedJob::kRanks; ++i) ports.push_back(static_cast<std::uint16_t>(first_of_ranks + i));
  return ports;
}

double meet(const char* files, const Attack& attack, const SecretFile& secret) {
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  const Flood flood(ports_of(port, first_of_ranks), kStrangers, attack.says);
  FloodedJob job(files, port, first_of_ranks, secret, [&] {
    const auto until = Clock::now() + 20s;
    while (flood.connected() < kStrangers / 2 && Clock::now() < until) std::this_thread::yield();
  });
  return static_cast<double>(job.meets_within_ms());
}

// A port at which strangers find what they find at a job's, but nobody who works: who speaks is sent away, the latest
// few who say nothing may stay.
class Elsewhere {
 public:
  Elsewhere() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), generic, size) != 0 || ::listen(listener_.get(), 4096) != 0 ||
        ::getsockname(listener_.get(), generic, &size) != 0)
      throw std::runtime_error("cannot listen");
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) serve();
    });
  }
  std::uint16_t port() const { return port_; }

 private:
  void serve() {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const Fd& guest : guests_) polled.push_back({guest.get(), POLLIN, 0});
    constexpr int kLookMs = 50;
    ::poll(polled.data(), polled.size(), kLookMs);
    for (std::size_t i = guests_.size(); i > 0; --i) {
      if (polled[i].revents != 0) guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
    if (polled[0].revents == 0) return;
    guests_.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guests_.size() > kGuests) guests_.pop_front();
  }
  static constexpr std::size_t kGuests = 16;
  Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
  std::deque<Fd> guests_;  // the thread's
  std::jthread thread_;
};

// Of the windows from now on: the median of their 99th percentiles, in us.
double p99_of_phase(Running& rank) {
  const auto from = Clock::now() + kSettles;
  std::this_thread::sleep_for(kPhase);
  Times windows;
  for (const std::string& line : rank.lines_so_far("window ")) {
    std::istringstream words(line);
    long long at_us = 0;
    double p50 = 0, p99 = 0;
    words >> at_us >> p50 >> p99;
    if (Clock::time_point(std::chrono::microseconds(at_us)) > from) windows.add(p99);
  }
  return windows.at(0.5);
}

// Strangers have machines of their own: here they take what time the ranks leave.
std::unique_ptr<Flood> flood_in_the_background(const std::vector<std::uint16_t>& ports, Flood::Says says) {
  std::unique_ptr<Flood> flood;
  std::thread([&] {  // its niceness is its thread's
    constexpr int kLeast = 19;
    if (::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLeast) == 0)
      flood = std::make_unique<Flood>(ports, kStrangers, says);
  })
      .join();
  if (!flood) throw std::runtime_error("cannot lower a thread's priority");
  return flood;
}

struct Beside {
  double quiet = 0, elsewhere = 0, here = 0;
};

// Rank 0's server and the ranks' ports are there while the job meets; who runs has closed what it does not need.
Beside run_beside(FloodedJob& job, const std::vector<std::uint16_t>& ports, const Elsewhere& elsewhere,
                  const Attack& attack) {
  Beside beside{.quiet = p99_of_phase(job.ranks.front())};
  {
    const auto flood = flood_in_the_background({elsewhere.port()}, attack.says);
    beside.elsewhere = p99_of_phase(job.ranks.front());
  }
  const auto flood = flood_in_the_background(ports, attack.says);
  beside.here = p99_of_phase(job.ranks.front());
  return beside;
}

}  // namespace

void measure_strangers(const Given& given, Report& report) {
  const SecretFile secret("strangers");
  report.say(fmt::format("a job of {} meets beside {} strangers, ms\n{:22}{}", FloodedJob::kRanks, kStrangers,
                         "descriptors, at most", "  of those who say nothing, garbage"));
  Times meetings;
  for (const char* files : kFiles) {
    const double silent = meet(files, kAttacks[0], secret), loud = meet(files, kAttacks[1], secret);
    report.say(fmt::format("{:>20} {:8.0f} {:8.0f}", files, silent, loud));
    meetings.add(silent);
    meetings.add(loud);
  }
  report.at_most("the longest meeting", meetings.at(1), kMeetsWithinMs, "ms");

  report.say(fmt::format("all_reduce of 8 bytes over tcp, {} ranks, p99 in us\n{:22} {:>8} {:>10} {:>8} {:>7} {:>9}",
                         FloodedJob::kRanks, "strangers say", "quiet", "elsewhere", "here", "times", "of quiet"));
  const std::uint16_t port = free_port(), first_of_ranks = free_port();
  FloodedJob job(
      "4096", port, first_of_ranks, secret, [] {}, tool("clocked"));
  job.meets_within_ms();
  const Elsewhere elsewhere;
  Times ratios;
  for (const Attack& attack : kAttacks) {
    Times quiet, other, here, times;
    for (std::size_t round = 0; round < given.count; ++round) {
      const Beside beside = run_beside(job, ports_of(port, first_of_ranks), elsewhere, attack);
      quiet.add(beside.quiet);
      other.add(beside.elsewhere);
      here.add(beside.here);
      times.add(beside.here / beside.elsewhere);
    }
    report.say(fmt::format("{:22} {:8.0f} {:10.0f} {:8.0f} {:7.2f} {:9.2f}", attack.name, quiet.at(0.5), other.at(0.5),
                           here.at(0.5), times.at(0.5), here.at(0.5) / quiet.at(0.5)));
    ratios.add(times.at(0.5));
  }
  report.at_most("p99 beside strangers here, by that beside as many elsewhere:", ratios.at(1), kMostTimes, "times");
}

}  // namespace rondo::test
