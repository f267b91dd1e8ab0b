// SPDX-License-Identifier: Apache-2.0
// A process of a short life is killed at its k-th system call, for every k: do those who live name it, agree and end?
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/reliability/launch_life.hpp"
#include "tests/reliability/moments.hpp"
#include "tests/reliability/short_life.hpp"
#include "tests/reliability/subjects.hpp"

namespace rondo::test {
namespace {

constexpr std::size_t kWorkers = 3;                // most of a life is waiting
constexpr double kToldMs = 1000, kEndMs = 20'000;  // the latter: 10 s for a rank that never comes, and as much again

struct Row {
  unsigned long moments = 0;
  std::size_t tried = 0, wrong = 0, silent = 0, hung = 0, left = 0;
  Times told;
  double longest_ms = 0;
  void add(const LifeEnd& end) {
    ++tried;
    wrong += !end.wrong.empty();
    silent += !end.silent.empty();
    hung += !end.hung.empty();
    left += !end.left.empty();
    for (const double ms : end.told_ms) told.add(ms);
    longest_ms = std::max(longest_ms, end.longest_ms);
  }
  static std::string head() {
    return fmt::format("{:12} {:>8} {:>7} {} {:>6} {:>6} {:>6} {:>6} {:>10}", "", "moments", "tried", Times::head(8),
                       "wrong", "silent", "hung", "left", "end by ms");
  }
  std::string row(const std::string& name) const {
    return fmt::format("{:12} {:8} {:7} {} {:6} {:6} {:6} {:6} {:10.0f}", name, moments, tried, told.row(8), wrong,
                       silent, hung, left, longest_ms);
  }
};

// What may be killed where. The server is away meanwhile, and comes back.
std::vector<Moment> kinds(const Given& given) {
  std::vector<Moment> all;
  const auto add = [&](const char* phase, const LifePlace& place, int victim) {
    const bool is_asked = (given.phase.empty() || given.phase == phase) &&
                          (given.place.empty() || given.place == place.name) &&
                          (given.rank < 0 || given.rank == victim);
    if (is_asked) all.push_back({phase, &place, victim, 0});
  };
  for (const LifePlace& place : kLifePlaces)
    for (const int victim : {kLauncher, kWitness, kSupervisor})
      if (place.name != std::string_view("tcp")) add(kLaunch, place, victim);
  for (const char* phase : kLifePhases) {
    const bool grows = std::string_view(phase) == "grow";
    const bool asks_server = grows || std::string_view(phase) == "join" || std::string_view(phase) == "shrink";
    for (const LifePlace& place : kLifePlaces) {
      for (const int victim : {0, 1, kLifeJoiner, kLifeServer}) {
        if ((victim == kLifeJoiner && !grows) || (victim == kLifeServer && (!place.has_server || !asks_server)))
          continue;
        add(phase, place, victim);
      }
    }
  }
  if (all.empty()) throw std::runtime_error("there is no such phase, place or rank to kill");
  return all;
}

class Moments {
 public:
  Moments(const Given& given, Report& report) : given_(given), report_(report), kinds_(kinds(given)) {}
  void run() {
    choose_kinds();
    in_threads([this](const EmptyHost& host) { count(host); });
    plan();
    next_ = 0;
    in_threads([this](const EmptyHost& host) { kill(host); });
    judge();
  }

 private:
  // Of a sample, some kinds are enough, and each costs a life to find out how many moments it has.
  void choose_kinds() {
    std::shuffle(kinds_.begin(), kinds_.end(), random_);
    if (given_.count > 0) kinds_.resize(std::min(kinds_.size(), std::max<std::size_t>(1, given_.count / 3)));
    counts_.resize(kinds_.size());
  }
  void in_threads(const std::function<void(const EmptyHost&)>& work) {
    std::exception_ptr failed;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&] {
        try {
          work(EmptyHost());
        } catch (...) {
          const std::lock_guard lock(mutex_);
          failed = std::current_exception();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    if (failed) std::rethrow_exception(failed);
  }
  // Nobody is killed, and nothing may be wrong then either.
  void count(const EmptyHost& host) {
    if (given_.call > 0) return;
    for (std::size_t i = 0; (i = next_++) < kinds_.size();) {
      const LifeEnd end = live(kinds_[i], host);
      counts_[i] = end.moments;
      const std::lock_guard lock(mutex_);
      rows_[kinds_[i].phase].moments += end.moments;
      say_faults(kinds_[i], end);
      undisturbed_wrong_ += !end.wrong.empty() || !end.silent.empty() || !end.hung.empty() || !end.left.empty();
    }
  }
  void plan() {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      Moment moment = kinds_[i];
      const unsigned long first = given_.call > 0 ? given_.call : 1, last = given_.call > 0 ? given_.call : counts_[i];
      for (moment.call = first; moment.call <= last; ++moment.call) plan_.push_back(moment);
    }
    std::shuffle(plan_.begin(), plan_.end(), random_);
    if (given_.count > 0 && given_.call == 0) plan_.resize(std::min(plan_.size(), given_.count));
  }
  void kill(const EmptyHost& host) {
    for (std::size_t i = 0; (i = next_++) < plan_.size();) {
      const LifeEnd end = live(plan_[i], host);
      const std::lock_guard lock(mutex_);
      rows_[plan_[i].phase].add(end);
      all_.add(end);
      say_faults(plan_[i], end);
    }
  }
  LifeEnd live(const Moment& moment, const EmptyHost& host) const {
    const bool launched = moment.phase == kLaunch;
    return launched ? launch_shortly(moment, host, secret_) : live_shortly(moment, host, secret_);
  }
  void say_faults(const Moment& moment, const LifeEnd& end) {
    for (const auto& [what, sentences] : {std::pair("wrong", &end.wrong), std::pair("silent", &end.silent),
                                          std::pair("hung", &end.hung), std::pair("left", &end.left)}) {
      for (const std::string& sentence : *sentences)
        report_.say(fmt::format("{}: {} ({}): {}", what, moment.replay(), end.where, sentence));
    }
  }
  void judge() {
    report_.say(Row::head());
    const auto say_row = [this](const char* phase) {
      if (!rows_.contains(phase)) return;
      report_.say(rows_[phase].row(phase));
      all_.moments += rows_[phase].moments;
    };
    std::ranges::for_each(kLifePhases, say_row);
    say_row(kLaunch);
    report_.say(all_.row("all"));
    report_.none("lives in which nobody was killed and something was wrong:", undisturbed_wrong_, kinds_.size());
    report_.none("kills after which a survivor blamed another, or was with others than those who live:", all_.wrong,
                 all_.tried);
    report_.none("kills after which a survivor could not go on:", all_.silent, all_.tried);
    report_.none("kills after which a survivor did not end:", all_.hung, all_.tried);
    report_.none("kills that left a process, memory, a file or a socket:", all_.left, all_.tried);
    report_.at_most("p99 of the time from the kill to a survivor's error", all_.told.at(0.99), kToldMs, "ms");
    report_.at_most("the longest time from the kill until all had ended", all_.longest_ms, kEndMs, "ms");
  }

  const Given& given_;
  Report& report_;
  std::mt19937 random_{given_.seed};
  const SecretFile secret_{"moments"};
  std::vector<Moment> kinds_, plan_;
  std::vector<unsigned long> counts_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::map<std::string, Row> rows_;
  Row all_;
  std::size_t undisturbed_wrong_ = 0;
};

}  // namespace

void measure_moments(const Given& given, Report& report) {
  if (const Ended tried = run({tool("doomed")}); tried.code != 0)
    return report.say("skipped: a process may not be traced here: " + tried.out);
  Moments(given, report).run();
}

}  // namespace rondo::test
