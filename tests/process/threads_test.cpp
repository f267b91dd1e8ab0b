// SPDX-License-Identifier: Apache-2.0
// The library's threads leave the program's signals to the program: each of them blocks all there are.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

namespace {

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

// KILL and STOP cannot be blocked, and the C library keeps two for itself.
constexpr std::uint64_t kNotToBeBlocked =
    std::uint64_t{1} << (SIGKILL - 1) | std::uint64_t{1} << (SIGSTOP - 1) | std::uint64_t{3} << 31;

// Of the threads named rondo-…: the signals that they would take.
std::map<std::string, std::uint64_t> signals_taken() {
  std::map<std::string, std::uint64_t> taken;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!name.starts_with("rondo-")) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line)) {
      if (line.starts_with("SigBlk:")) taken[name] |= ~std::stoull(line.substr(7), nullptr, 16) & ~kNotToBeBlocked;
    }
  }
  return taken;
}

// A thread bears its name from when it begins to run.
void check_blocked(const std::vector<std::string>& names) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  for (;;) {
    const auto taken = signals_taken();
    const bool all = std::all_of(names.begin(), names.end(), [&](const auto& name) { return taken.contains(name); });
    for (const auto& [name, signals] : taken) {
      INFO(name);
      REQUIRE(signals == 0);
    }
    if (all) return;
    std::string seen;
    for (const auto& each : taken) seen += each.first + " ";
    INFO("of those awaited, here are only " << seen);
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
}

// Ranks as threads of this process that make their communicators by `make` and use them; `look` while all are there.
void on_ranks(int world_size, const std::function<Communicator(int)>& make, const std::function<void()>& look) {
  std::vector<Communicator> ranks(static_cast<std::size_t>(world_size));
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        ranks[r] = make(static_cast<int>(r));
        std::vector<float> data(1000, 1);
        if (ranks[r].device().kind == Device::Kind::cpu) ranks[r].async().all_reduce(data, ReduceOp::sum).wait();
        if (ranks[r].device().kind == Device::Kind::sim) {
          const auto window = ranks[r].allocate<float>(1000);
          ranks[r].all_reduce(window.span(), ReduceOp::sum);
          ranks[r].synchronize();
        }
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  look();
  threads.clear();
  for (auto& rank : ranks) threads.emplace_back([&] { rank = {}; });
  for (auto& thread : threads) thread.join();
}

Communicator meet_by_file(const std::string& path, int rank) {
  return Communicator::create({.rank = rank, .world_size = 2, .url = "file://" + path});
}

}  // namespace

TEST_CASE("threads of ranks that meet by a file block every signal, over shared memory and over TCP") {
  const char* transport = GENERATE("shm", "tcp");
  const Setting chosen("RONDO_TRANSPORT", transport);
  const std::string path = std::filesystem::temp_directory_path() / ("rondo-threads-" + std::to_string(::getpid()));
  on_ranks(
      2, [&](int rank) { return meet_by_file(path, rank); },
      [] {
        check_blocked({"rondo-server", "rondo-client", "rondo-monitor", "rondo-engine"});
      });
}

TEST_CASE("the thread that introduces neighbours blocks every signal") {
  // Rank 1 comes when the thread has been looked at, so rank 0 still waits for it.
  const std::string url = "tcp://127.0.0.1:" + std::to_string(20'000 + ::getpid() % 20'000);
  Options options;
  options.join_timeout = 30s;
  const auto make = [&](int rank) {
    return Communicator::create({.rank = rank, .world_size = 2, .url = url}, options);
  };
  Communicator first;
  std::thread rank0([&] { first = make(0); });
  try {
    check_blocked({"rondo-neighbour"});
  } catch (...) {
    make(1);
    rank0.join();
    throw;
  }
  const Communicator second = make(1);
  rank0.join();
}

TEST_CASE("threads of simulated devices block every signal, also those that carry data between nodes") {
  const auto store = std::make_shared<LocalStore>();
  const auto make = [&](int rank) {
    Bootstrap bootstrap;
    bootstrap.rank = rank;
    bootstrap.world_size = 2;
    bootstrap.store = store;
    Options options;
    options.device = Device::sim(rank);
    options.node = "node" + std::to_string(rank);
    return make_communicator(std::move(bootstrap), options);
  };
  on_ranks(2, make, [] { check_blocked({"rondo-monitor", "rondo-stream", "rondo-proxy", "rondo-watcher"}); });
}
