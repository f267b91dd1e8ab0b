// SPDX-License-Identifier: Apache-2.0
// A rank that goes on after a failure: survivor WAY SCENARIO [RANK PLACE [DELAY_US]]. What it then has, it says: the
// ranks in the first world of those in each communicator that it comes to, in their order.
// WAY: threads, spawn, env, or url, which meets at PLACE. SCENARIO: "abort": rank 0 aborts and nobody dies. "killed":
// rank 2 is. "first": rank 0 is, whose server the others met at. "during": rank 1 dies too, DELAY_US after it has
// called shrink(). "left": rank 2 goes of its own will.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/time.h>
#include <unistd.h>
#include <csignal>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using rondo::Communicator;
constexpr int kRanks = 4;

struct Scenario {
  std::string name;
  long delay_us = 0;
  bool kills() const { return name == "killed" || name == "during" || name == "first"; }
  int victim() const { return name == "first" ? 0 : 2; }
};

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

// Who is in it, by what they were at first.
std::vector<int> members(Communicator& comm, int first_rank) {
  std::vector<int> all(static_cast<std::size_t>(comm.world_size()));
  comm.all_gather(std::array{first_rank}, all);
  return all;
}

// Everything that a failed communicator may be asked: it says its failure, at once.
void check_refusals(Communicator& failed) {
  std::vector<int> data(8, 1);
  const std::pair<const char*, std::function<void()>> operations[] = {
      {"check", [&] { failed.check(); }},
      {"barrier", [&] { failed.barrier(); }},
      {"synchronize", [&] { failed.synchronize(); }},
      {"split", [&] { failed.split(0, 0); }},
      {"allocate", [&] { failed.allocate<int>(8); }},
      {"all_gather_bytes", [&] { failed.all_gather_bytes({}); }},
      {"async", [&] { failed.async().all_reduce(data, rondo::ReduceOp::sum).wait(); }},
      {"group",
       [&] {
         auto group = failed.group();
         group.all_reduce(data, rondo::ReduceOp::sum);
         group.end();
       }},
  };
  for (const auto& [name, operation] : operations) {
    bool threw = false;
    try {
      operation();
    } catch (const rondo::Error& error) {
      threw = error.error_code() == rondo::ErrorCode::aborted || error.error_code() == rondo::ErrorCode::peer_lost;
      if (!threw) throw;
    }
    if (!threw) throw std::runtime_error(fmt::format("{} of a failed communicator succeeded", name));
  }
  failed.abort();  // once more changes nothing
}

void fail_together(Communicator& comm) {
  std::vector<int> ones(1000, 1);
  if (comm.rank() == 0) comm.abort();
  try {
    for (;;) comm.all_reduce(ones, rondo::ReduceOp::max);
  } catch (const rondo::Error&) {
  }
}

// Until so many are left: who dies may do so after it has been taken along.
Communicator shrink_to(std::size_t ranks, Communicator& failed) {
  Communicator next = failed.shrink();
  while (static_cast<std::size_t>(next.world_size()) > ranks) {
    try {
      for (;;) next.barrier();
    } catch (const rondo::Error& error) {
      if (error.error_code() != rondo::ErrorCode::peer_lost) throw;
    }
    next = next.shrink();
  }
  return next;
}

void run(std::optional<Communicator> comm, const Scenario& scenario) {
  const int self = comm->rank();
  std::vector<int> ones(1000, 1);
  if (scenario.name == "left" && self == 2) return comm.reset();
  if (scenario.kills() && self == scenario.victim()) {
    comm->barrier();  // the others have their communicators, too
    ::kill(::getpid(), SIGKILL);
  }
  if (scenario.name == "abort" && self == 0) comm->abort();
  try {
    if (scenario.kills()) comm->barrier();
    for (;;) comm->all_reduce(ones, rondo::ReduceOp::max);
  } catch (const rondo::Error&) {
  }
  check_refusals(*comm);
  if (scenario.name == "during" && self == 1) {  // SIGALRM, which nobody handles
    const itimerval after{.it_interval = {}, .it_value = {0, std::max(1L, scenario.delay_us)}};
    ::setitimer(ITIMER_REAL, &after, nullptr);
  }
  Communicator next = scenario.name == "during" ? shrink_to(2, *comm) : comm->shrink();
  std::string said = fmt::format("{}", members(next, self));
  if (scenario.name != "during") {
    Communicator again = comm->shrink();  // the failed one, a second time
    said += fmt::format(" {}", members(again, self));
    comm.reset();
    fail_together(next);
    Communicator shrunk = next.shrink();  // a shrunk one
    said += fmt::format(" {}", members(shrunk, self));
    Communicator child = again.split(again.rank() % 2, -again.rank());
    fail_together(child);
    check_refusals(child);
    Communicator reversed = child.shrink();
    said += fmt::format(" {}", members(reversed, self));
    again.barrier();  // its parent has not failed
  }
  say(fmt::format("survivor {}: {}", self, said));
}

rondo::Options options() { return {.join_timeout = std::chrono::seconds(30)}; }

int run_threads(const Scenario& scenario) {
  auto ranks = Communicator::local(kRanks, options());
  std::vector<std::jthread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&] {
      try {
        run(std::move(rank), scenario);
      } catch (const std::exception& error) {
        say(fmt::format("error {}", error.what()));
      }
    });
  }
  return 0;
}

}  // namespace

int main(int count, char** argv) {
  const std::string way = argv[1];
  const Scenario scenario{argv[2], count > 5 ? std::atol(argv[5]) : 0};
  try {
    if (way == "threads") return run_threads(scenario);
    if (way == "spawn") return rondo::spawn(kRanks, [&](Communicator& comm) { run(std::move(comm), scenario); });
    if (way == "env") {
      run(Communicator::from_environment(options()), scenario);
    } else {
      run(Communicator::create({.rank = std::atoi(argv[3]), .world_size = kRanks, .url = argv[4]}, options()),
          scenario);
    }
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
