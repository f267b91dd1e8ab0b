// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/judgement.hpp"

#include <fmt/format.h>
#include <csignal>

#include <algorithm>
#include <chrono>
#include <utility>

#include <rondo/error.hpp>

#include "runtime/process/exit_status.hpp"
#include "tools/rondorun/cores.hpp"

namespace rondo::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = process::EventLoop::Clock;

constexpr milliseconds kSettle = process::Respite::kSettle;
constexpr milliseconds kHearsay{150};  // a failure that may be the echo of another rank's counts after this long
constexpr std::chrono::seconds kVerdictLimit{5};   // for the rendezvous to answer, when all else is over
constexpr std::chrono::seconds kDecisionLimit{1};  // for it to say whether survivors go on

// Who ended with exit code 0 while others needed it has failed no less than those.
void name_those_who_left(const Ranks& ranks, Failure& failure) {
  if (failure.rank < 0) return;
  for (const int rank : failure.blamed) {
    const std::string who = ranks.who_ended_well(rank);
    if (who.empty()) continue;
    failure.sentence = left_while_needed(who, failure.sentence);
    failure.blamed.clear();
    return;
  }
  const auto before = failure.exit_code > 128 ? std::vector<int>{} : ranks.ended_well_before(failure.at);
  if (before.empty()) return;
  failure.sentence +=
      fmt::format("; before it rank{} {} had ended with exit code 0", before.size() == 1 ? "" : "s", cpu_list(before));
}

}  // namespace

Judgement::Judgement(process::EventLoop& loop, const Options& options, Job& job, Voice& voice)
    : loop_(loop),
      options_(options),
      job_(job),
      voice_(voice),
      respite_(loop, options.grace_period, [this](int number) { signal(number); }) {}

// Whatever happens, each phase is entered once.
void Judgement::enter(Phase next) {
  if (next <= phase_ || (next == Phase::stopping && phase_ == Phase::meeting)) return;
  phase_ = next;
  switch (phase_) {
    case Phase::meeting:
    case Phase::running:
    case Phase::ended:
      return;
    case Phase::stopping:
      return stop_within_grace();
    case Phase::finishing:
      leave_folder();
      return voice_.when_written([this] { loop_.stop(); });
    case Phase::abandoned:
      if (job_.nodes) job_.nodes->abandon();
      return loop_.stop();
  }
}

void Judgement::on_failure(const Failure& failure) {
  const bool killed = failure.exit_code > 128;
  if (!turn_.failure) {
    turn_.failure = failure;
    look_at_ranks();
    voice_.err().fold(true);
    enter(Phase::stopping);
    // A rank that ends by itself may do so because another one, here or on another node, was killed: its peers can
    // notice that sooner than its launcher.
    respite_.later(killed ? milliseconds(0) : kHearsay, [this] { settle_failure(); });
  } else if (!turn_.settled && killed && turn_.failure->exit_code <= 128) {
    turn_.others.push_back(*std::exchange(turn_.failure, failure));
    settle_failure();
  } else {
    turn_.others.push_back(failure);
  }
}

void Judgement::look_at_ranks() {
  if (job_.ranks && job_.end_signal == 0) job_.folder->look(*job_.ranks);
}

void Judgement::leave_folder() {
  if (!job_.ranks || !turn_.failure || job_.end_signal != 0) return;
  const auto sentence = job_.folder->leave(*turn_.failure, *job_.ranks);
  if (!sentence.empty()) voice_.say(sentence);
}

void Judgement::settle_failure() {
  if (!turn_.failure || std::exchange(turn_.settled, true)) return;
  if (job_.end_signal != 0)
    turn_.failure = {.sentence = "stopped by " + process::signal_name(job_.end_signal),
                     .exit_code = 128 + job_.end_signal};
  else
    name_those_who_left(*job_.ranks, *turn_.failure);
  if (job_.nodes) {  // said when the verdict has come, as another node's may be the first
    job_.nodes->report(turn_of_start(), *turn_.failure);
    respite_.later(job_.nodes->longest_grace() + kVerdictLimit, [this] {
      if (!turn_.again) on_lost(turn_.failure->sentence);
    });
  } else {
    say_failure();
  }
}

void Judgement::say_failure() {
  voice_.say(turn_.failure->sentence);
  turn_.lines_when_said = voice_.lines();
}

// Below all that the other ranks wrote about it.
void Judgement::say_failure_again() {
  if (!turn_.failure || job_.end_signal != 0 || !turn_.lines_when_said || *turn_.lines_when_said == voice_.lines())
    return;
  const auto lines = job_.ranks->last_lines(turn_.failure->rank);
  if (options_.starter >= 0 && lines.empty()) return;  // over ssh all launchers are heard, and one has them
  const auto ago = std::chrono::duration_cast<milliseconds>(Clock::now() - turn_.failure->at).count();
  voice_.say(
      fmt::format("{}, {} ago{}", turn_.failure->sentence,
                  ago < 1000 ? fmt::format("{} ms", ago) : fmt::format("{:.1f} s", static_cast<double>(ago) / 1000),
                  lines.empty() ? "" : "; its last lines were:"),
      lines);
}

// The first failure of all nodes, which ends them all unless survivors go on; or success.
void Judgement::on_verdict(const Failure& verdict) {
  turn_.verdict = verdict.exit_code == 0 ? Verdict::final : Verdict::known;
  if (verdict.exit_code != 0) {
    const bool ours = turn_.failure && verdict.sentence.find(turn_.failure->sentence) != std::string::npos;
    if (turn_.failure && !ours && turn_.failure->rank >= 0) turn_.others.push_back(*turn_.failure);
    if (ours)
      turn_.failure->sentence = verdict.sentence;
    else
      turn_.failure = verdict;
    turn_.settled = true;
    if (verdict.rank != kNobody) look_at_ranks();
    say_failure();
    enter(Phase::stopping);
    if (phase_ >= Phase::ended) job_.nodes->ended(turn_of_start(), *turn_.failure);
    if (turn_.window_over) judge();
    return;
  }
  say_success();
  if (phase_ >= Phase::ended) job_.nodes->leave(true);
}

// Of all nodes, about the verdict.
void Judgement::on_decision(Decision decision) {
  if (decision == Decision::goes_on && job_.end_signal == 0 && !respite_.told_to_end()) return go_on();
  turn_.verdict = Verdict::final;
  turn_.again = decision == Decision::again || decision == Decision::anew;
  if (turn_.window_over || turn_.again) tell_to_end();
  if (phase_ >= Phase::ended) on_node_done();
}

// The others had their time, or have ended: whether they go on without the rank that failed.
void Judgement::judge() {
  const bool ends = turn_.verdict == Verdict::final || turn_.verdict == Verdict::lost;
  const bool waits = options_.continue_on_failure && phase_ == Phase::stopping && job_.end_signal == 0 && !ends;
  if (waits) {
    voice_.err().fold(false);
    respite_.later(kSettle, [this] { judge(); });
  }
  if (job_.nodes && turn_.verdict == Verdict::known) {
    job_.nodes->judge(turn_of_start(), *turn_.failure, respite_.told_to_end(), !waits);
    if (!waits) respite_.later(kDecisionLimit, [this] { tell_to_end(); });
  } else if (!job_.nodes && is_missed(turn_.failure->rank)) {
    go_on();
  } else if (!waits) {
    tell_to_end();
  }
}

bool Judgement::is_missed(int rank) {
  if (rank < 0 || job_.end_signal != 0 || respite_.told_to_end()) return false;
  try {
    return job_.alone->is_missed(rank);
  } catch (const Error& error) {
    voice_.say(error.what());
    return false;
  }
}

// As if nothing had failed, but for what is said of it at the end. What else failed meanwhile has its own turn.
void Judgement::go_on() {
  settle_failure();
  if (job_.ranks->running() > 0) voice_.say(fmt::format("the other ranks go on without rank {}", turn_.failure->rank));
  leave_folder();
  left_behind_.push_back(*turn_.failure);
  const auto others = std::move(turn_.others);
  turn_ = Turn{};
  respite_.begin_next();
  voice_.err().fold(false);
  if (job_.ranks->running() > 0) job_.replace(left_behind_.back().rank);
  phase_ = job_.ranks->running() > 0 ? Phase::running : Phase::ended;
  for (const Failure& other : others) on_failure(other);
  if (phase_ == Phase::running) look_for_left_behind();
  if (job_.nodes && phase_ == Phase::ended) on_node_done();
}

void Judgement::say_success() {
  for (const Failure& failure : left_behind_)
    voice_.say(fmt::format("{}; the other ranks went on without it and finished", failure.sentence));
}

void Judgement::on_lost(const std::string& sentence) {
  const bool meant_to_start = std::exchange(turn_.again, false);
  if (std::exchange(turn_.verdict, Verdict::lost) == Verdict::awaited || meant_to_start) {
    if (!turn_.failure || meant_to_start) turn_.failure = {.sentence = sentence, .exit_code = 1};
    turn_.settled = true;
    look_at_ranks();
    say_failure();
    enter(Phase::stopping);
  }
  if (phase_ == Phase::meeting || phase_ >= Phase::ended) enter(Phase::finishing);
}

void Judgement::stop_within_grace() {
  respite_.later(std::min(kSettle, options_.grace_period), [this] {
    if (!job_.nodes && phase_ != Phase::stopping) return;
    turn_.window_over = true;
    judge();
  });
}

void Judgement::tell_to_end() {
  if (respite_.told_to_end()) return;
  settle_failure();  // what ends from now on was told to
  respite_.tell_to_end();
}

void Judgement::signal(int signal) {
  if (respite_.told_to_end()) voice_.err().hold();
  job_.ranks->signal(signal);
}

// A rank that was stopped while the others shrank does nothing any more, and would be waited for for ever.
void Judgement::look_for_left_behind() {
  if (ends_left_behind_ || job_.end_signal != 0) return;
  if (auto stopped = job_.ranks->all_stopped(); !stopped.empty()) return ask_for_left_behind(std::move(stopped));
  end_unneeded();
}

// Who was started in the place of a lost rank would wait for others to let it join until its deadline.
void Judgement::end_unneeded() {
  const auto ranks = job_.ranks->who_runs();
  try {
    const auto waits = [this](int rank) { return job_.alone->waits_to_join(rank); };
    if (!job_.alone || ranks.empty() || !std::all_of(ranks.begin(), ranks.end(), waits)) return;
  } catch (const Error& error) {
    return voice_.say(error.what());
  }
  ends_left_behind_ = true;
  voice_.say(fmt::format("the other ranks have ended, and none has let the replacement of rank{} {} join: told to end",
                         ranks.size() == 1 ? "" : "s", cpu_list(ranks)));
  respite_.end_left_behind();
}

void Judgement::ask_for_left_behind(std::vector<int> ranks) {
  if (job_.nodes)
    return job_.nodes->ask_whether_missed(ranks, [this, start = first_turn_] {
      if (start == first_turn_ && job_.ranks) end_left_behind();
    });
  if (std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return is_missed(rank); })) end_left_behind();
}

void Judgement::end_left_behind() {
  const auto stopped = job_.ranks->all_stopped();
  if (stopped.empty() || job_.end_signal != 0 || std::exchange(ends_left_behind_, true)) return;
  voice_.say(process::left_behind_sentence(stopped));
  respite_.end_left_behind();
}

bool Judgement::may_start_again() const { return turn_.failure && job_.end_signal == 0 && !turn_.failure->never_ran(); }

bool Judgement::nodes_start_again() const { return turn_.again && phase_ == Phase::ended && job_.end_signal == 0; }

void Judgement::start_again() {
  leave_folder();
  turn_ = Turn{};
  respite_.begin_next();
  respite_.forget();
  first_turn_ = respite_.turn();
  said_finished_ = ends_left_behind_ = false;
  left_behind_.clear();
  voice_.err().fold(false);
  phase_ = Phase::meeting;
}

void Judgement::settle() {
  while (turn_.failure && !job_.nodes) {
    settle_failure();
    if (!is_missed(turn_.failure->rank)) break;
    go_on();
  }
}

void Judgement::on_ranks_ended() {
  if (!turn_.again) say_failure_again();
  enter(Phase::ended);
  if (job_.nodes) return on_node_done();
  if (!turn_.failure) say_success();
  enter(Phase::finishing);
}

// This node's ranks have ended, and those of others may run.
void Judgement::on_node_done() {
  if (turn_.verdict == Verdict::lost) {
    settle_failure();
    return enter(Phase::finishing);
  }
  // A failure is reported when it counts: it may be the echo of another node's.
  if (!turn_.failure && !std::exchange(said_finished_, true)) job_.nodes->finished(turn_of_start());
  if (turn_.failure && turn_.verdict == Verdict::known) job_.nodes->ended(turn_of_start(), *turn_.failure);
  if (turn_.again && job_.end_signal != 0) return on_signal_before_start(job_.end_signal);  // the others without us
  if (turn_.verdict == Verdict::final && !turn_.again) job_.nodes->leave(!turn_.failure);
}

void Judgement::on_closed(const Closed& closed) {
  if (closed.exit_code != 0) turn_.failure = {.sentence = closed.sentence, .exit_code = closed.exit_code};
  voice_.say(closed.sentence);
  enter(Phase::finishing);
}

void Judgement::on_signal_before_start(int signal) {
  turn_.failure = {.sentence = "", .exit_code = 128 + signal};
  enter(Phase::finishing);
}

std::optional<int> Judgement::exit_code() const {
  if (phase_ == Phase::abandoned) return 128 + SIGKILL;
  return turn_.failure ? std::optional(turn_.failure->exit_code) : std::nullopt;
}

}  // namespace rondo::launcher
