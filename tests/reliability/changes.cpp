// SPDX-License-Identifier: Apache-2.0
// Ranks are killed, others join, and the rendezvous server dies and comes back, in random sequences: those who live
// must come to one world, again and again, and nobody else may notice that the server was away.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "tests/process/host.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kWorkers = 2;
constexpr int kFirstRanks = 4, kMostMembers = 6;
constexpr std::size_t kSteps = 6;  // of a sequence
constexpr double kAgreeMs = 1000;  // from a kill, or from the start of a process, until all agree
constexpr int kGapUs = 60'000;     // between two changes, where nobody waits for the first

long long now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// A server by itself, which may be killed and started again at its port.
class Server {
 public:
  explicit Server(const SecretFile& secret) : secret_(secret.path.string()) { start(); }
  void start() {
    program_ = std::make_unique<Running>(Words{tool("rondo-rendezvous"), "--port", port_, "--secret-file", secret_});
    port_ = program_->lines("127.0.0.1:", 1).front();
  }
  void kill() {
    program_->signal(SIGKILL);
    program_->wait();
    program_.reset();
  }
  std::string url() const { return "tcp://127.0.0.1:" + port_; }

 private:
  std::string secret_, port_ = "0";
  std::unique_ptr<Running> program_;
};

struct World {
  long long at_us = 0;
  std::vector<int> ids;
  explicit World(const std::string& line) {
    std::istringstream words(line);
    words >> at_us;
    for (int id = 0; words >> id;) ids.push_back(id);
  }
};

// Those who live of a job, by their ids.
class Job {
 public:
  Job(std::string place, Words environment) : place_(std::move(place)), environment_(std::move(environment)) {
    for (int rank = 0; rank < kFirstRanks; ++rank) start({std::to_string(rank), std::to_string(kFirstRanks)});
  }
  void join() { start({}); }
  // Whom others than who never was in a world outlive: who only waits to join can make none.
  std::vector<int> mortals() const {
    std::vector<int> all = ids();
    const auto lives_on = [&](int id) { return agreed_.contains(id) && members_.contains(id); };
    const auto settled = std::count_if(all.begin(), all.end(), lives_on);
    if (settled < 2) std::erase_if(all, lives_on);
    return all;
  }
  void kill(int id) {
    members_.at(id)->signal(SIGKILL);
    members_.erase(id);  // and waits for it
  }
  std::vector<int> ids() const {
    std::vector<int> all;
    for (const auto& [id, member] : members_) all.push_back(id);
    return all;
  }
  // When the last of them said that it is in the world of all who live, and of nobody else.
  long long agree() {
    long long last_us = 0;
    std::vector<int> order;
    for (auto& [id, member] : members_) {
      const World world = world_of(id, *member);
      if (order.empty()) order = world.ids;
      if (world.ids != order) throw std::runtime_error("members have different worlds: " + history());
      last_us = std::max(last_us, world.at_us);
    }
    agreed_.insert(order.begin(), order.end());
    return last_us;
  }
  std::size_t losses() {
    std::size_t count = 0;
    for (auto& [id, member] : members_) count += member->lines_so_far("lost ").size();
    return count;
  }
  void end() {
    members_.begin()->second->signal(SIGTERM);
    for (auto& [id, member] : members_) {
      const Ended ended = member->wait();
      if (ended.code != 0)
        throw std::runtime_error(fmt::format("member {} ended with {}: {}{}", id, ended.code, ended.out, ended.err));
    }
  }
  // All that those who live have said, and their ends.
  std::string history() {
    std::string all;
    for (auto& [id, member] : members_) {
      member->signal(SIGKILL);
      const Ended ended = member->wait();
      all += fmt::format("\n  member {}:\n{}{}", id, ended.out, ended.err);
    }
    members_.clear();
    return all;
  }

 private:
  void start(const Words& rank) {
    const int id = next_++;
    members_[id] =
        std::make_unique<Running>(Words{tool("member"), std::to_string(id), place_} + rank,
                                  Running::How{.environment = environment_ + Words{"RONDO_LOG=info"}, .limit = 30s});
  }
  World world_of(int id, Running& member) {
    for (std::size_t count = 1;; ++count) {
      auto said = member.lines_so_far("world ");
      if (said.size() < count) {
        try {
          said = member.lines("world ", count);
        } catch (const std::exception& error) {
          const auto living = ids();  // before history() ends them
          throw std::runtime_error(fmt::format("member {} does not come to the world of {}: {}{}", id,
                                               fmt::join(living, " "), error.what(), history()));
        }
      }
      count = said.size();
      World world(said.back());
      auto sorted = world.ids;
      std::sort(sorted.begin(), sorted.end());
      if (sorted == ids()) return world;
    }
  }
  std::string place_;
  Words environment_;
  int next_ = 0;
  std::set<int> agreed_;  // who was in a world when all agreed
  std::map<int, std::unique_ptr<Running>> members_;
};

struct Measured {
  Times kills, joins;
  std::size_t changes = 0, servers = 0, failed = 0;
  void add(const Measured& more) {
    kills.add(more.kills);
    joins.add(more.joins);
    changes += more.changes;
    servers += more.servers;
    failed += more.failed;
  }
};

// One sequence. Where a server of its own is there, it goes away, too; else rank 0 serves, and may be killed.
class Sequence {
 public:
  Sequence(const SecretFile& secret, const std::string& meeting, unsigned seed, Measured& measured)
      : random_(seed), measured_(measured) {
    const bool has_server = draw(2) == 0;
    if (has_server) server_ = std::make_unique<Server>(secret);
    const Words environment = has_server ? Words{"RONDO_SECRET_FILE=" + secret.path.string()} : Words{};
    job_ = std::make_unique<Job>(has_server ? server_->url() : "file://" + meeting, environment);
  }
  const std::string& what() const { return what_; }
  void run() {
    job_->agree();
    for (std::size_t i = 0; i < kSteps; ++i) step();
    job_->agree();
    job_->end();
  }

 private:
  std::size_t draw(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  void kill_one() {
    const auto ids = job_->mortals();
    if (ids.empty()) return;
    const int id = ids[draw(ids.size())];
    what_ += fmt::format(" kill {}", id);
    job_->kill(id);
  }
  void join_one() {
    if (job_->ids().size() >= kMostMembers) return;
    what_ += " join";
    job_->join();
  }
  void pause(int most_us) {
    const timespec delay{.tv_sec = 0, .tv_nsec = static_cast<long>(draw(static_cast<std::size_t>(most_us))) * 1000L};
    ::nanosleep(&delay, nullptr);
  }
  void restart_server(bool in_a_change) {
    if (!server_) return;
    what_ += " server dies";
    server_->kill();
    if (in_a_change) draw(2) == 0 ? kill_one() : join_one();
    pause(kGapUs);
    what_ += " and is back";
    server_->start();
  }
  // One change; the next comes when all agree, or while they are at it.
  void step() {
    ++measured_.changes;
    const auto losses = job_->losses();
    const auto begun_us = now_us();
    const std::size_t change = draw(6);
    if (change == 0) kill_one();
    if (change == 1) kill_one(), pause(2000), kill_one();
    if (change == 2) join_one();
    if (change == 3) join_one(), pause(20'000), kill_one();
    if (change >= 4) restart_server(change == 5);
    const bool was_calm = calm_;
    calm_ = draw(2) == 0;
    if (!calm_) return pause(kGapUs);
    what_ += ",";
    const double ms = static_cast<double>(job_->agree() - begun_us) / 1e3;
    if (!was_calm) return;
    if (change < 2 && ms > 0) measured_.kills.add(ms);
    if (change == 2 && ms > 0) measured_.joins.add(ms);
    if (change == 4 && server_) ++measured_.servers;
    if (change == 4 && job_->losses() != losses)
      throw std::runtime_error("the server's end was noticed" + job_->history());
  }

  std::mt19937 random_;
  Measured& measured_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Job> job_;
  std::string what_;
  bool calm_ = true;  // all agreed before this change
};
Measured work(const Given& given, Report& report, std::atomic<std::size_t>& next) {
  Measured measured;
  const auto number = next++;
  const SecretFile secret(fmt::format("changes-{}-", number));
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("rondo-changes-{}-{}", ::getpid(), number);
  std::filesystem::create_directory(folder);
  for (std::size_t i = number; i < given.count; i = next++) {
    Sequence sequence(secret, folder / std::to_string(i), given.seed + static_cast<unsigned>(i), measured);
    try {
      sequence.run();
    } catch (const std::exception& error) {
      ++measured.failed;
      report.say(fmt::format("failed, seed {}:{}: {}", given.seed + i, sequence.what(), error.what()));
    }
  }
  std::filesystem::remove_all(folder);
  return measured;
}

}  // namespace

void measure_changes(const Given& given, Report& report) {
  std::atomic<std::size_t> next{0};
  std::vector<std::future<Measured>> workers;
  for (std::size_t i = 0; i < kWorkers; ++i)
    workers.push_back(std::async(std::launch::async, [&] { return work(given, report, next); }));
  Measured all;
  for (auto& worker : workers) all.add(worker.get());
  report.say(fmt::format("{} changes; {} times nothing but the server died and came back, and no call failed",
                         all.changes, all.servers));
  report.say(fmt::format("{:26} {}", "until all agree", Times::head(8)));
  report.say(fmt::format("{:26} {}", "from kills", all.kills.row(8)));
  report.say(fmt::format("{:26} {}", "from a process' start", all.joins.row(8)));
  report.none("sequences in which the living did not agree:", all.failed, given.count);
  report.at_most("p99 from a kill until all agree", all.kills.at(0.99), kAgreeMs, "ms");
  report.at_most("p99 from a process' start until all agree", all.joins.at(0.99), kAgreeMs, "ms");
}

}  // namespace rondo::test
