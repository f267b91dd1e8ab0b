// SPDX-License-Identifier: Apache-2.0
// Processes of a job are killed in a random order at random moments: what is left of it? Each job has a network and a
// /dev/shm of its own, so that whatever is left there is its own.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/reliability/empty_host.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kWorkers = 3;  // most of a job is waiting
constexpr int kStartUs = 400'000;    // a job has begun by then
constexpr int kGapUs = 4000;         // between two kills
constexpr auto kGoneWithin = 10s;    // a grace period is 300 ms; the rest is for a busy machine

void sleep_us(int us) {
  const timespec delay{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000L};
  ::nanosleep(&delay, nullptr);
}

// One job and who of it is killed.
class Order {
 public:
  Order(const EmptyHost& empty, const SecretFile& secret, unsigned seed) : empty_(empty), random_(seed) {
    const std::string secret_path = secret.path.string();
    by_hand_ = draw(4) == 0;
    if (by_hand_) {
      start_by_hand(secret_path);
      return;
    }
    ranks_ = 1 + draw(4);
    // All three of a launcher's processes at once spare what ranks have made daemons of: only one that makes none.
    const bool daemons = draw(2) == 0;
    if (daemons) spared_ = kLauncher[draw(3)];
    const std::size_t nodes = 1 + draw(2);
    for (std::size_t node = 0; node < nodes; ++node) {
      Words command = rondorun({"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(node),
                                "--nproc-per-node", std::to_string(ranks_), "--master-addr", "127.0.0.1",
                                "--secret-file", secret_path, "--grace-period", "0.3", "--"});
      start(command + (daemons ? Words{tool("nasty")} : rank()), {});
    }
    what_ = fmt::format("{} launchers of {} {}", nodes, ranks_, daemons ? "ranks with daemons" : "ranks");
  }
  const std::string& what() const { return what_; }

  void kill() {
    sleep_us(static_cast<int>(draw(kStartUs)));
    auto processes = empty_.processes();
    what_ += "; killed:";
    std::vector<pid_t> order;
    for (const auto& [pid, name] : processes)
      if (!is_spared(pid, name)) order.push_back(pid);
    std::shuffle(order.begin(), order.end(), random_);
    if (order.empty()) return;
    order.resize(1 + draw(order.size()));
    for (const pid_t pid : order) {
      what_ += fmt::format(" {} {}{}", pid, processes[pid], was_started(pid) ? " (started)" : "");
      ::kill(pid, SIGKILL);
      if (draw(2) == 0) sleep_us(static_cast<int>(draw(kGapUs)));
    }
  }
  // Also what nobody killed: a launcher is asked to end, and so is who was started by hand.
  void end() {
    for (auto& process : processes_) process.signal(SIGTERM);
  }

 private:
  static constexpr const char* kLauncher[] = {"launcher", "witness", "supervisor"};
  bool was_started(pid_t pid) const {
    return std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) { return one.pid() == pid; });
  }
  // The supervisor's name is the launcher's.
  bool is_spared(pid_t pid, const std::string& name) const {
    const bool started = was_started(pid);
    if (spared_ == "launcher") return started;
    if (spared_ == "witness") return name == "job-witness";
    return spared_ == "supervisor" && name == "rondorun" && !started;
  }
  std::size_t draw(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  Words rank() {
    const char* phase = draw(2) == 0 ? "calling" : "windows";
    return {tool("target"), "all_reduce", phase, "0", draw(2) == 0 ? "1000" : "400000"};
  }
  void start(const Words& command, const Words& environment) {
    processes_.emplace_back(empty_.host().inside(command), Running::How{.environment = environment});
    processes_.back().close_output();
  }
  void start_by_hand(const std::string& secret) {
    ranks_ = 2 + draw(3);
    start({tool("rondo-rendezvous"), "--port", "29500", "--secret-file", secret}, {});
    const Words program = rank();
    for (std::size_t i = 0; i < ranks_; ++i)
      start(program, {"RANK=" + std::to_string(i), "WORLD_SIZE=" + std::to_string(ranks_), "MASTER_ADDR=127.0.0.1",
                      "MASTER_PORT=29500", "RONDO_SECRET_FILE=" + secret});
    what_ = fmt::format("a server and {} ranks by hand", ranks_);
  }

  const EmptyHost& empty_;
  std::mt19937 random_;
  bool by_hand_ = false;
  std::size_t ranks_ = 0;
  std::string spared_, what_;
  std::deque<Running> processes_;
};

struct Leftovers {
  std::atomic<std::size_t> next{0}, left{0};
};

void work(const Given& given, Report& report, Leftovers& tally, const SecretFile& secret) {
  const EmptyHost empty;
  for (std::size_t i = 0; (i = tally.next++) < given.count;) {
    Order order(empty, secret, given.seed + static_cast<unsigned>(i));
    order.kill();
    order.end();
    const std::string left = empty.left_after(kGoneWithin);
    if (left.empty()) continue;
    ++tally.left;
    report.say(fmt::format("left, seed {}: {}; {}", given.seed + i, left, order.what()));
    empty.kill_all();
  }
}

}  // namespace

void measure_orders(const Given& given, Report& report) {
  Leftovers tally;
  const SecretFile secret("orders");
  std::vector<std::thread> workers;
  std::exception_ptr failed;
  std::mutex mutex;
  for (std::size_t i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&] {
      try {
        work(given, report, tally, secret);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
      }
    });
  }
  for (auto& worker : workers) worker.join();
  if (failed) std::rethrow_exception(failed);
  report.none("jobs that left a process, memory, a file or a socket:", tally.left, given.count);
}

}  // namespace rondo::test
