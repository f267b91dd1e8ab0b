// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "rendezvous/survivals.hpp"

namespace rondo::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kJobLimit = 24h * 365 * 10;                   // as long as the job takes
constexpr auto kBetweenReminders = 5s;                       // of who is waited for
constexpr auto kHearingLimit = 1s;                           // of a verdict, for a node that is not cut off
constexpr const char* kSomebody = "a launcher of this job";  // whose answer is the first, nobody can tell

std::string verdict_text(const Failure& verdict) {
  return text_of(Verdict{.exit_code = verdict.exit_code, .rank = verdict.rank, .sentence = verdict.sentence});
}

Failure failure_from(const std::string& text) {
  auto verdict = verdict_from(text, kSomebody);
  return {.sentence = std::move(verdict.sentence), .exit_code = verdict.exit_code, .rank = verdict.rank};
}

std::string verdict_of(int turn) { return fmt::format("verdict/{}", turn); }
std::string decision_of(int turn) { return fmt::format("decision/{}", turn); }
std::string heard_of(int turn) { return fmt::format("heard/{}", turn); }
std::string all_heard_of(int turn) { return fmt::format("all heard/{}", turn); }
std::string left_of(int node) { return fmt::format("left/{}", node); }

std::string name_of(int node, const std::string& launcher) {
  return fmt::format("the launcher of node {}{}", node, launcher.empty() ? "" : " on host " + launcher);
}

std::string name_of(int node, const std::vector<std::string>& launchers) {
  const auto index = static_cast<std::size_t>(node);
  return name_of(node, index < launchers.size() ? launchers[index] : "");
}

}  // namespace

Nodes::Nodes(process::EventLoop& loop, const Options& options, std::optional<rendezvous::Secret> secret,
             Handlers handlers)
    : loop_(loop),
      options_(options),
      handlers_(std::move(handlers)),
      meeting_(options, std::move(secret)),
      listener_([this] { listen(); }),
      speaker_([this](const std::stop_token& stop) { speak(stop); }) {}

void Nodes::listen() {
  bool meeting = true;
  meeting_.when_gone([this](int node, const std::string& launcher) {
    loop_.post([this, sentence = name_of(node, launcher) + " is gone"] { handlers_.waiting(sentence); });
  });
  try {
    meeting_.connect();
    if (is_elastic(options_) && !meeting_.serves()) watches_.emplace_back([this] { meeting_.stand_by(); });
    std::optional<Placement> last;
    for (int restarts = 0; restarts >= 0;) {
      const Placement at = meeting_.gather(restarts);
      if (last && is_elastic(options_)) end_watch(*last);
      meeting = false;
      set_met(true);
      // One watch for the whole job where its launchers stay the same.
      if (at.start == 0 || is_elastic(options_))
        watches_.emplace_back([this, at, names = meeting_.launchers()] { watch_launchers(at, names); });
      if (is_elastic(options_) && meeting_.serves()) watches_.emplace_back([this, at] { watch_arrivals(at); });
      loop_.post([this, at] {
        at_ = at;
        handlers_.joined(at);
      });
      restarts = follow_start(at, at.restarts);
      if (restarts < 0) return;
      await_own_ranks();
      last = at;
      set_met(false);
      meeting = true;
    }
  } catch (const Closed& closed) {
    loop_.post([this, closed] { handlers_.closed(closed); });
  } catch (const std::exception& error) {
    loop_.post([this, sentence = what_failed(error, meeting, meeting_.launchers())] { handlers_.lost(sentence); });
  }
}

// Until its end. Returns how many restarts there have been when all start again, and -1 when they do not.
int Nodes::follow_start(const Placement& at, int restarts) {
  for (int turn = 0;; ++turn) {
    const auto verdict = failure_from(await(at.start, verdict_of(turn)));
    if (verdict.exit_code == kLost) {
      loop_.post([this, verdict] { handlers_.lost(verdict.sentence); });
      return -1;
    }
    if (verdict.exit_code != 0 && !abandoned_ && meeting_.store().add(key_of(at.start, heard_of(turn)), 1) == at.nodes)
      meeting_.store().set(key_of(at.start, all_heard_of(turn)), {});
    loop_.post([this, verdict] { handlers_.verdict(verdict); });
    if (verdict.exit_code == 0) return -1;
    const auto decision = decision_from(await(at.start, decision_of(turn)), kSomebody);
    loop_.post([this, decision] { handlers_.decision(decision); });
    if (decision == Decision::ends) return -1;
    if (decision == Decision::again) return restarts + 1;
    if (decision == Decision::anew) return restarts;
  }
}

void Nodes::await_own_ranks() {
  std::unique_lock lock(mutex_);
  ranks_ended_.wait(lock, [this] { return starts_wanted_ > 0; });
  --starts_wanted_;
}

void Nodes::start_again() {
  const std::lock_guard lock(mutex_);
  ++starts_wanted_;
  ranks_ended_.notify_one();
}

std::string Nodes::what_failed(const std::exception& error, bool meeting,
                               const std::vector<std::string>& launchers) const {
  const auto* known = dynamic_cast<const Error*>(&error);
  int node = known == nullptr ? -1 : known->culprit();
  const bool is_server = node < 0 && meeting_.is_connected() && !meeting_.serves() && known != nullptr &&
                         known->error_code() == ErrorCode::peer_lost;
  if (is_server) node = 0;
  // It is we who may not come, or a word that nobody can read.
  if (known != nullptr && known->error_code() == ErrorCode::mismatch) return error.what();
  if (known != nullptr && known->error_code() == ErrorCode::corrupt_message) return error.what();
  if (meeting && !is_server)
    return (meeting_.is_connected() ? fmt::format("not all {} nodes came: ", options_.nodes) : "") + error.what();
  if (node >= 0 && node < options_.nodes) return fmt::format("{} is gone: {}", name_of(node, launchers), error.what());
  return fmt::format("another node's launcher is gone: {}", error.what());
}

// All launchers wait here as long as they live: one participant never comes, so each is told at once when another is
// gone.
void Nodes::watch_launchers(const Placement& at, const std::vector<std::string>& launchers) {
  try {
    meeting_.store().exchange(key_of(at.start, "launchers"), at.node, at.nodes + 1, {}, Clock::now() + kJobLimit);
  } catch (const Error& error) {
    if (error.culprit() < 0) return;  // the rendezvous is gone, or we are: the listener has the same, and says so
    const std::string sentence = what_failed(error, false, launchers);
    try {
      const int start = is_elastic(options_) ? at.start : meeting_.start();
      if (has_left(start, error.culprit())) return;
      if (is_elastic(options_)) {
        meeting_.lose(at.start, error.culprit());
        interrupt(at.start, verdict_text({.sentence = sentence}), Decision::anew);
        if (!was_said(at.start, sentence)) loop_.post([this, sentence] { handlers_.waiting(sentence); });
      } else if (interrupt(at.start, verdict_text({.sentence = sentence, .exit_code = kLost}), Decision::ends) ==
                 Decision::again) {
        loop_.post([this, sentence] { handlers_.lost(sentence); });
      }
    } catch (const std::exception&) {  // like that
    }
  }
}

// The job has ended, and it had nothing more to do.
bool Nodes::has_left(int start, int node) { return meeting_.store().try_get(key_of(start, left_of(node))).has_value(); }

// Of the last start, once the next one has been met: until then nobody is waited for who is lost meanwhile. Where
// somebody was, it has ended.
void Nodes::end_watch(const Placement& at) {
  if (!meeting_.serves() || meeting_.has_lost(at.start)) return;
  try {
    meeting_.store().exchange(key_of(at.start, "launchers"), at.nodes, at.nodes + 1, {}, Clock::now() + kHearingLimit);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::timeout) throw;  // else somebody was lost a moment ago
  }
}

// At node 0: one more node waits for the next start.
void Nodes::watch_arrivals(const Placement& at) {
  try {
    meeting_.await_newcomer(at.start + 1);
    if (at.nodes < options_.nodes)
      interrupt(at.start, verdict_text({.sentence = "another node has come", .rank = kNobody}), Decision::anew);
  } catch (const std::exception&) {  // the listener has the same, and says so
  }
}

// Becomes the next answer that nobody has given. Returns what was decided instead, if it was not the first.
Decision Nodes::interrupt(int start, const std::string& verdict, Decision decision) {
  for (int turn = 0;; ++turn) {
    give(start, verdict_of(turn), verdict);
    const auto given = failure_from(await(start, verdict_of(turn)));
    if (given.exit_code == 0 || given.exit_code == kLost) return Decision::ends;
    give(start, decision_of(turn), word_of(decision));
    const auto next = decision_from(await(start, decision_of(turn)), kSomebody);
    if (next != Decision::goes_on) return next;
  }
}

// As the first verdict: else a failure came before it, which may be what it cost a rank.
bool Nodes::was_said(int start, const std::string& sentence) {
  return failure_from(await(start, verdict_of(0))).sentence == sentence;
}

std::string Nodes::await(int start, std::string_view answer) {
  return text_of(meeting_.store().get(key_of(start, answer), Clock::now() + kJobLimit));
}

// The first one that is given counts.
bool Nodes::give(int start, std::string_view answer, const std::string& text) {
  return meeting_.store().compare_and_set(key_of(start, answer), std::nullopt, bytes_of(text));
}

void Nodes::report(int turn, const Failure& failure) {
  say([this, start = at_.start, turn, failure] {
    Failure verdict = failure;
    for (const int rank : failure.blamed) {
      const auto who = meeting_.store().try_get(key_of(start, fmt::format("ended well/{}", rank)));
      if (!who) continue;
      verdict.sentence = left_while_needed(text_of(*who), failure.sentence);
      break;
    }
    give(start, verdict_of(turn), verdict_text(verdict));
  });
}

void Nodes::judge(int turn, const Failure& failure, bool told_to_end, bool ends) {
  say([this, at = at_, turn, failure, told_to_end, ends] { decide(at, turn, failure, !told_to_end, ends); });
}

void Nodes::ended(int turn, const Failure& failure) {
  say([this, at = at_, turn, failure] {
    const bool all = meeting_.store().add(key_of(at.start, fmt::format("ended/{}", turn)), 1) == at.nodes;
    if (all) decide(at, turn, failure, true, true);
  });
}

void Nodes::decide(const Placement& at, int turn, const Failure& failure, bool may_go_on, bool ends) {
  const bool missed =
      may_go_on && failure.rank >= 0 && meeting_.store().try_get(rendezvous::missed_key(failure.rank)).has_value();
  if (missed)
    give(at.start, decision_of(turn), word_of(Decision::goes_on));
  else if (ends)
    give(at.start, decision_of(turn), word_of(after_failure(at, turn, failure)));
}

// A failure that is no rank's is a signal's, or a program's that cannot be started. A node that does not hear of it is
// cut off, which its neighbours' ranks notice first: then the node has failed, and they have not.
Decision Nodes::after_failure(const Placement& at, int turn, const Failure& failure) {
  if (failure.rank < 0 || failure.never_ran()) return Decision::ends;
  if (is_elastic(options_)) {
    try {
      meeting_.store().get(key_of(at.start, all_heard_of(turn)), Clock::now() + kHearingLimit);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) throw;
      return Decision::anew;
    }
  }
  return at.restarts < options_.max_restarts ? Decision::again : Decision::ends;
}

void Nodes::ask_whether_missed(std::vector<int> ranks, std::function<void()> missed) {
  say([this, ranks = std::move(ranks), missed = std::move(missed)] {
    const auto is_missed = [this](int rank) {
      return meeting_.store().try_get(rendezvous::missed_key(rank)).has_value();
    };
    if (std::all_of(ranks.begin(), ranks.end(), is_missed)) loop_.post(missed);
  });
}

void Nodes::ended_well(int rank, const std::string& who) {
  say([this, start = at_.start, rank, who] {
    meeting_.store().set(key_of(start, fmt::format("ended well/{}", rank)), bytes_of(who));
  });
}

void Nodes::depart(const std::string& why) {
  if (!is_elastic(options_) || meeting_.serves()) return;
  say([this, at = at_, why] {
    const auto sentence = fmt::format("node {} on host {} leaves: {}", at.node, host_name(), why);
    meeting_.stay_away(at.start + 1, at.node);  // first, as this launcher may end as soon as that is decided
    interrupt(at.start, verdict_text({.sentence = sentence, .rank = kNobody}), Decision::anew);
  });
}

void Nodes::finished(int turn) {
  say([this, at = at_, turn] {
    if (meeting_.store().add(key_of(at.start, "finished"), 1) != at.nodes) return;
    give(at.start, verdict_of(turn), verdict_text({.sentence = "", .exit_code = 0}));
  });
}

void Nodes::leave(bool good) {
  say([this, at = at_, good] {
    auto& store = meeting_.store();
    if (!meeting_.serves()) {
      store.set(key_of(at.start, left_of(at.node)), {});
    } else {
      if (is_elastic(options_))
        meeting_.close(at.start + 1,
                       {fmt::format("the job has {} without this node", good ? "finished" : "failed"), good ? 0 : 1});
      // Ranks of other nodes may still be ending, and use the server while they do.
      const auto deadline = Clock::now() + at.longest_grace + 5s;
      for (int node = 1; node < at.nodes; ++node) store.get(key_of(at.start, left_of(node)), deadline);
    }
    loop_.post([this] { handlers_.left(); });
  });
}

void Nodes::set_met(bool met) {
  const std::lock_guard lock(mutex_);
  met_ = met;
  something_to_say_.notify_one();
}

void Nodes::say(std::function<void()> words) {
  const std::lock_guard lock(mutex_);
  to_say_.push_back(std::move(words));
  something_to_say_.notify_one();
}

void Nodes::remind() {
  try {
    const std::string sentence = meeting_.missing_sentence();
    if (!sentence.empty()) loop_.post([this, sentence] { handlers_.waiting(sentence); });
  } catch (const std::exception&) {  // the listener has the same, and says so
  }
}

void Nodes::speak(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    const bool meets = !met_;
    const auto has_changed = [&] { return !to_say_.empty() || met_ == meets; };
    if (meets && !something_to_say_.wait_for(lock, stop, kBetweenReminders, has_changed)) {
      if (stop.stop_requested()) return;
      lock.unlock();
      remind();
      continue;
    }
    if (!meets && !something_to_say_.wait(lock, stop, has_changed)) return;
    if (to_say_.empty()) continue;
    const auto words = std::move(to_say_.front());
    to_say_.pop_front();
    lock.unlock();
    try {
      words();
    } catch (const std::exception& error) {
      loop_.post([this, sentence = what_failed(error, false, {})] { handlers_.lost(sentence); });  // names: listener's
    }
  }
}

}  // namespace rondo::launcher
