// SPDX-License-Identifier: Apache-2.0
// Thousands of jobs in simulated time, each with troubles of its own that follow from its seed:
//   RONDO_SIM_SCHEDULES=1000000 control_schedules    so many of them
//   RONDO_SIM_SEED=4711 control_schedules            that one again
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "tests/comm/simulated/job.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/seeds.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace rondo::comm::test;

namespace {

constexpr std::uint64_t kSchedules = 20'000;
constexpr milliseconds kPatience = std::chrono::minutes(2);
constexpr milliseconds kLongestComputation{300};
// With that, the longest delays, and what neighbours who know more are given to say it.
constexpr milliseconds kKillKnownWithin{1000}, kCutKnownWithin{3500};

enum class Trouble : std::uint8_t { none, kill, stop, nap, cut, flap, odd_call, late_call, leave, abort };
constexpr int kTroubles = 10;
constexpr const char* kNames[kTroubles] = {"nothing",     "a kill",      "a stop",      "a short stop", "a cut",
                                           "a short cut", "an odd call", "a late call", "an early end", "an abort"};

std::vector<int> nodes_of_ranks(World& world) {
  const int n = static_cast<int>(world.draw(2, 5));
  const int most = static_cast<int>(world.draw(1, static_cast<std::uint64_t>(std::min(n, 4))));
  std::vector<int> nodes;
  std::map<int, int> numbers;  // by what was drawn: they have no gaps
  for (int r = 0; r < n; ++r) {
    const int drawn = static_cast<int>(world.draw(0, static_cast<std::uint64_t>(most - 1)));
    nodes.push_back(numbers.emplace(drawn, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

milliseconds one_of(World& world, std::initializer_list<long> of) {
  return milliseconds(*(of.begin() + world.draw(0, of.size() - 1)));
}

// One schedule, before it runs.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : world_(seed),
        longest_delay_(one_of(world_, {1, 10, 80})),
        monitor_lag_(one_of(world_, {0, 3, 30})),
        job_(world_, nodes_of_ranks(world_), longest_delay_, monitor_lag_) {
    for (int r = 0; r < job_.size(); ++r) {
      job_.part(r).calls = kCalls;
      job_.part(r).computes = one_of(world_, {0, 20, kLongestComputation.count()});
      job_.part(r).lingers = one_of(world_, {0, 1, 1000});
    }
    const std::uint64_t troubles = world_.draw(0, 9) == 0 ? 2 : 1;
    for (std::uint64_t i = 0; i < troubles; ++i) trouble();
    job_.start();
    all_ended_ = world_.run(world_.now() + kPatience);
  }

  bool has(Trouble trouble) const { return std::ranges::count(troubles_, trouble) != 0; }
  std::string fault() {
    if (!all_ended_) return "a rank that lives never ends";
    for (int r = 0; r < job_.size(); ++r) {
      if (std::string sentence = fault_of(r); !sentence.empty()) return sentence;
    }
    if (const milliseconds took = took_to_know(Trouble::kill); took > kKillKnownWithin)
      return fmt::format("that a rank was killed was known after {} ms", took.count());
    if (const milliseconds took = took_to_know(Trouble::cut); took > kCutKnownWithin)
      return fmt::format("that a host was cut off was known after {} ms", took.count());
    return {};
  }
  // Where that is all that happened: from then until the last rank has its error.
  milliseconds took_to_know(Trouble trouble) {
    milliseconds longest{0};
    if (troubles_ != std::vector{trouble} || !happened_at_) return longest;
    for (int r = 0; r < job_.size(); ++r) {
      const Job::Part& part = job_.part(r);
      if (part.error && !job_.killed(r))
        longest = std::max(longest, std::chrono::duration_cast<milliseconds>(part.ended_at - *happened_at_));
    }
    return longest;
  }
  std::string tell() {
    std::string text;
    for (const Trouble trouble : troubles_) text += fmt::format("{}; ", kNames[static_cast<int>(trouble)]);
    text += '\n';
    for (int r = 0; r < job_.size(); ++r) {
      const Job::Part& part = job_.part(r);
      text += fmt::format("rank {} of node {}{}: {} calls{}{}, at {} ms\n", r, job_.node_of(r),
                          is_troubled(r) ? " (troubled)" : "", part.done, part.error ? "; " : "",
                          part.error ? part.error->what() : "",
                          std::chrono::duration_cast<milliseconds>(part.ended_at - kBegin).count());
    }
    return text;
  }

 private:
  static constexpr int kCalls = 6;
  static constexpr Time kBegin{std::chrono::hours(1)};

  bool is_troubled(int rank) const { return troubled_.contains(rank); }
  int anyone() { return static_cast<int>(world_.draw(0, static_cast<std::uint64_t>(job_.size() - 1))); }
  void trouble() {
    const auto drawn = static_cast<Trouble>(world_.draw(0, kTroubles - 1));
    const bool needs_nodes = drawn == Trouble::cut || drawn == Trouble::flap;
    if (needs_nodes && job_.nodes() < 2) return trouble();
    troubles_.push_back(drawn);
    const auto when = std::chrono::microseconds(world_.draw(0, 800'000));
    const int whose = anyone(), which = static_cast<int>(world_.draw(1, kCalls));
    Job::Part& part = job_.part(whose);
    switch (drawn) {
      case Trouble::none:
        return;
      case Trouble::kill:
        troubled_.insert(whose);
        if (world_.draw(0, 3) == 0) return job_.kill_after(whose, static_cast<long>(world_.draw(0, 20'000)));
        return world_.after(when, [this, whose] {
          happened_at_ = world_.now();
          job_.kill(whose, world_.draw(0, 1) == 0);
        });
      case Trouble::stop:
      case Trouble::nap: {
        const bool is_long = drawn == Trouble::stop;
        if (is_long) troubled_.insert(whose);
        const milliseconds duration = is_long ? 3 * kDeadline : milliseconds(world_.draw(1, 3000));
        world_.after(when, [this, whose] { job_.stop(whose, true); });
        return world_.after(when + duration, [this, whose] { job_.stop(whose, false); });
      }
      case Trouble::cut:
      case Trouble::flap: {
        const bool is_long = drawn == Trouble::cut;
        const int node = job_.node_of(whose);
        if (is_long) cut_.insert(node);
        const bool hears_nobody = job_.nodes() - static_cast<int>(cut_.size()) < 2;  // a node that nothing befalls
        for (int r = 0; is_long && r < job_.size(); ++r) {
          if (job_.node_of(r) == node || hears_nobody) troubled_.insert(r);
        }
        const milliseconds duration = is_long ? milliseconds(60'000) : milliseconds(world_.draw(1, 1500));
        world_.after(when, [this, node] {
          happened_at_ = world_.now();
          job_.cut(node, true);
        });
        return world_.after(when + duration, [this, node] { job_.cut(node, false); });
      }
      case Trouble::odd_call:
        part.odd_call = which;
        for (int r = 0; r < job_.size(); ++r) {  // of two, or where two are odd, nobody can tell
          if (r == whose || job_.size() == 2 || troubles_.size() > 1) troubled_.insert(r);
        }
        return;
      case Trouble::late_call:
        part.late_call = which;
        troubled_.insert(whose);
        return;
      case Trouble::leave:
        part.leaves_after = which - 1;
        troubled_.insert(whose);
        return;
      case Trouble::abort:
        part.aborts_after = which - 1;
        troubled_.insert(whose);
        return;
    }
  }

  std::string fault_of(int rank) {
    const Job::Part& part = job_.part(rank);
    if (job_.killed(rank)) return {};
    if (!part.error) {
      if (part.done == kCalls || part.done == part.leaves_after) return {};
      return fmt::format("rank {} ends after {} calls, without an error", rank, part.done);
    }
    const int culprit = part.error->culprit();
    const std::vector<int>& culprits = part.error->culprits();
    const bool either = culprit < 0 && culprits.size() == 2 && part.error->error_code() == ErrorCode::mismatch;
    if (either && std::ranges::any_of(culprits, [&](int r) { return is_troubled(r); })) return {};
    if (culprit < 0) return fmt::format("rank {} names nobody: {}", rank, part.error->what());
    if (!is_troubled(culprit)) return fmt::format("rank {} blames rank {}: {}", rank, culprit, part.error->what());
    for (const int other : culprits) {
      if (!is_troubled(other)) return fmt::format("rank {} blames rank {}, too: {}", rank, other, part.error->what());
    }
    return {};
  }

  World world_;
  const milliseconds longest_delay_, monitor_lag_;  // drawn in this order, as all compilers must
  Job job_;
  std::set<int> cut_;  // nodes
  std::vector<Trouble> troubles_;
  std::set<int> troubled_;
  std::optional<Time> happened_at_;
  bool all_ended_ = false;
};

}  // namespace

// Its goodbye may overtake what it has sent in collectives.
TEST_CASE("a host that is cut off right behind the goodbye of its rank is named as soon as any") {
  int errors = 0;
  for (int cut_after_ms = 0; cut_after_ms < 200; ++cut_after_ms) {
    World world(1 + static_cast<std::uint64_t>(cut_after_ms));
    Job job(world, {0, 1}, milliseconds(80), milliseconds(0));
    for (const int rank : {0, 1}) job.part(rank).calls = 1;
    world.after(milliseconds(cut_after_ms), [&] { job.cut(1, true); });
    job.start();
    CAPTURE(cut_after_ms);
    CHECK(world.run(world.now() + kPatience));
    for (const int rank : {0, 1}) {
      if (!job.part(rank).error) continue;
      ++errors;
      CHECK(job.part(rank).error->error_code() == ErrorCode::peer_lost);
    }
  }
  CHECK(errors > 0);
}

TEST_CASE("whatever befalls ranks and their network, every rank ends, and those without trouble are never blamed") {
  const auto [first, last, one] = rondo::test::Seeds::given(kSchedules);
  std::map<Trouble, std::uint64_t> happened;
  milliseconds kill_known{0}, cut_known{0};
  int faults = 0;
  for (std::uint64_t seed = first; seed <= last && faults < 10; ++seed) {
    Schedule schedule(seed);
    const std::string fault = schedule.fault();
    if (one) std::cout << schedule.tell();
    INFO("RONDO_SIM_SEED=" << seed << ": " << fault);
    CHECK(fault.empty());
    faults += fault.empty() ? 0 : 1;
    kill_known = std::max(kill_known, schedule.took_to_know(Trouble::kill));
    cut_known = std::max(cut_known, schedule.took_to_know(Trouble::cut));
    for (int trouble = 0; trouble < kTroubles; ++trouble)
      happened[static_cast<Trouble>(trouble)] += schedule.has(static_cast<Trouble>(trouble));
  }
  for (const auto& [trouble, times] : happened)
    std::cout << fmt::format("{} schedules with {}\n", times, kNames[static_cast<int>(trouble)]);
  std::cout << fmt::format("known by all after at most {} ms (a kill) and {} ms (a cut)\n", kill_known.count(),
                           cut_known.count());
  if (one) return;
  for (const auto& [trouble, times] : happened) CHECK(times > (last - first) / 50);
}
