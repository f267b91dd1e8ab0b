// SPDX-License-Identifier: Apache-2.0
// One rank does not enter a call that the others wait in until their deadline: every rank's error names it and nobody
// else. A seed makes a case: which rank, among how many, on how many nodes, in what calls and after which.
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "tests/comm/stress/memory.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 400ms;
constexpr auto kLimit = 20s;
constexpr std::size_t kAtOnce = 8;  // worlds, whose ranks sleep nearly all the time

class Countdown {
 public:
  explicit Countdown(int count) : left_(count) {}
  void count_down() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [&] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

struct Step {
  Collective collective;
  std::size_t count;
  int root;
};

struct Case {
  Kind kind;
  int world, late;
  std::vector<Step> before{}, within{};  // all ranks make the first; all but one the others
};

std::string describe(const Case& one) {
  std::string text = fmt::format("{}, rank {} of {} is late after {} calls for", name_of(one.kind), one.late, one.world,
                                 one.before.size() + 1);
  for (const Step& step : one.within) {
    text += fmt::format(" {} of {} (root {})", rondo::name_of(step.collective), step.count, step.root);
  }
  return text;
}

// A block of a few bytes, one that fits beside a flag no more, and one of several slices.
constexpr std::size_t kCounts[] = {1, 5'000, 90'000};

Case make_case(Kind kind, Collective first, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int world = 2 + static_cast<int>(random() % 4);
  Case one{.kind = kind, .world = world, .late = static_cast<int>(random() % static_cast<std::uint64_t>(world))};
  const auto step = [&](Collective collective) {
    return Step{collective, kCounts[random() % std::size(kCounts)],
                static_cast<int>(random() % static_cast<std::uint64_t>(world))};
  };
  const auto any = [&] {
    constexpr int kCollectives = static_cast<int>(Collective::send);
    return static_cast<Collective>(random() % kCollectives);
  };
  for (auto left = random() % 3; left != 0; --left) one.before.push_back(step(any()));
  one.within.push_back(step(first));
  for (auto left = random() % 3; left != 0; --left) one.within.push_back(step(any()));
  one.within.push_back(step(Collective::barrier));  // some return from calls that not all have entered; not from this
  return one;
}

void run(Communicator& comm, const Step& step) {
  const auto world = static_cast<std::size_t>(comm.world_size());
  const std::size_t bytes = step.count * world * sizeof(float);
  const Memory send(comm, bytes), recv(comm, bytes);
  const std::vector<std::size_t> counts(world, step.count);
  const CollectiveRow& row = row_of(step.collective);
  Call call{.collective = step.collective,
            .send = send.data(),
            .recv = recv.data(),
            .count = step.collective == Collective::barrier ? 0 : step.count,
            .dtype = DataType::f32,
            .root = row.rooted ? step.root : -1};
  if (row.send == Extent::counts) call.send_counts = counts;
  if (row.recv == Extent::counts) call.recv_counts = counts;
  comm.submit(call);
  comm.synchronize();
}

// By rank, what it threw.
std::vector<std::exception_ptr> run_case(const Case& one) {
  Countdown failed(one.world - 1);
  return run_world(one.kind, one.world, {.timeout = kLimit}, [&](Communicator& comm) {
    for (const Step& step : one.before) run(comm, step);
    comm.barrier();
    comm.set_timeout(kPatience);
    const bool late = comm.rank() == one.late;
    if (late && !failed.wait()) throw std::runtime_error("the others have not failed");
    try {
      for (const Step& step : one.within) run(comm, step);
      comm.barrier();  // the late one's: what it was told may still be on its way to it
      comm.synchronize();
    } catch (...) {
      if (!late) failed.count_down();
      throw;
    }
  });
}

// Empty: every error is right.
std::string judge(const Case& one, const std::vector<std::exception_ptr>& errors) {
  for (int rank = 0; rank < one.world; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    const bool right = code_of(error) == ErrorCode::timeout && culprit_of(error) == one.late &&
                       sentence_of(error).find(fmt::format("rank {} ", one.late)) != std::string::npos;
    if (!right) {
      return fmt::format("{}: rank {} blames {}: {}", describe(one), rank, culprit_of(error), sentence_of(error));
    }
  }
  return {};
}

// What was wrong with each.
std::vector<std::string> search(const std::vector<Case>& cases, std::size_t at_once) {
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < at_once; ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < cases.size(); at = next++) {
        const std::string why = judge(cases[at], run_case(cases[at]));
        const std::lock_guard lock(mutex);
        if (!why.empty()) wrong.push_back(why);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

constexpr Kind kOnHost[] = {Kind::local, Kind::shm, Kind::tcp, Kind::pairs, Kind::uneven, Kind::woven, Kind::queue};
constexpr Kind kOnDevices[] = {Kind::sim};

void search_from(std::uint64_t seed, int rounds, std::span<const Kind> kinds, std::size_t at_once) {
  std::vector<Case> cases;
  for (int round = 0; round < rounds; ++round) {
    for (const Kind kind : kinds) {
      for (const CollectiveRow& row : collective_table()) {
        if (!row.is_message()) cases.push_back(make_case(kind, row.collective, seed + cases.size()));
      }
    }
  }
  const auto wrong = search(cases, at_once);
  INFO("seed " << seed);
  for (const std::string& why : wrong) UNSCOPED_INFO(why);
  UNSCOPED_INFO(wrong.size() << " of " << cases.size() << " cases name somebody else");
  CHECK(wrong.empty());
}

}  // namespace

TEST_CASE("deadline: whoever did not enter is named, by every rank, in any collective on any nodes") {
  search_from(rotating_seed(), 1, kOnHost, kAtOnce);
}

TEST_CASE("deadline: whoever did not enqueue is named, by every rank, in any collective of devices") {
  const Setting by_name("RONDO_ALGORITHM", GENERATE("", "ring"));
  search_from(rotating_seed(), 1, kOnDevices, 1);
}

TEST_CASE("deadline: the same in many more cases", "[.full]") { search_from(rotating_seed(), 6, kOnHost, kAtOnce); }
