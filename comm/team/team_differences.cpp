// SPDX-License-Identifier: Apache-2.0
// Ranks called different things: in what two of them differ, and which of all of them is to blame.
#include <fmt/format.h>

#include <algorithm>

#include "comm/team/team_remote.hpp"

namespace rondo::comm {
namespace {

constexpr std::chrono::milliseconds kAskAgainAfter{5};

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

// A rank that called something smaller may be done with it and in its next collective: what they disagree on is then
// what both did under the smaller of the two sequence numbers.
Difference Team::find_difference(const Signature& mine, int peer, const Signature& theirs) {
  const bool collectives = !is_message(mine) && !is_message(theirs);
  if (collectives && theirs.sequence == mine.sequence && theirs.past != mine.past) {
    return find_earliest_difference(mine.sequence, peer);
  }
  Signature past;
  Difference found{.peer = peer, .about = theirs.sequence == mine.sequence && collectives ? mine : Signature{}};
  if (collectives && theirs.sequence < mine.sequence) {
    if (read_history(own_line().calls, theirs.sequence, past)) found.sentence = compare(rank(), past, peer, theirs);
    if (!found.empty()) found.about = past;
  } else if (collectives && theirs.sequence > mine.sequence) {
    if (signature_of(peer, mine.sequence, past)) {
      found.sentence = compare(rank(), mine, peer, past);
      if (!found.empty()) found.about = mine;
    } else {  // the peer knows what it did then, and this rank tells it what it should have been
      announce_waiting(mine);
      await_verdict(peer);
    }
  }
  if (found.empty()) found.sentence = compare(rank(), mine, peer, theirs);
  return found;
}

// A rank of another node finds it in its own history, when this one tells it all of its; as long as it has not, all
// that is known is the call up to which they differ.
Difference Team::find_earliest_difference(std::uint64_t latest, int peer) {
  Signature mine, theirs;
  const bool elsewhere = !shares_memory(peer);
  const std::uint64_t oldest = latest - std::min(latest - 1, kHistory - 1);
  for (std::uint64_t sequence = oldest; sequence <= latest; ++sequence) {
    if (!read_history(own_line().calls, sequence, mine)) continue;
    if (elsewhere) announce_waiting(mine);
    if (elsewhere || !signature_of(peer, sequence, theirs)) continue;
    const std::string sentence = compare(rank(), mine, peer, theirs);
    if (!sentence.empty()) return {sentence, peer, mine};
  }
  if (elsewhere) await_verdict(peer);
  return {fmt::format("rank {} and rank {} disagree on a collective before #{}", rank(), peer,
                      elsewhere ? latest + 1 : oldest),
          peer};
}

// ---- who is to blame ----

// What each called is asked for until a majority is clear, or all have come, or it has taken too long.
std::vector<Standing> Team::hear_all(const Signature& about) {
  const auto until = system().now() + kJudging;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - system().now());
    auto standings = inquire(about, std::max(left, kAskAgainAfter));
    const auto may_come = [&](const Standing& s) { return !s.known || s.at.sequence < about.sequence; };
    const bool all_came = std::none_of(standings.begin(), standings.end(), may_come);
    const bool decided = 2 * find_majority(standings, about.sequence).most.size() > standings.size();
    if (decided || all_came || failure_.raised() || system().now() >= until) return standings;
    std::unique_lock lock(answers_);
    system().wait(answered_, lock, kAskAgainAfter);
  }
}

Error Team::judge(const Difference& difference) {
  const auto both = [&] { return either_of(ErrorCode::mismatch, difference.sentence, rank(), difference.peer); };
  if (difference.about.sequence == 0 || size() <= 2) return both();
  const auto standings = hear_all(difference.about);
  const Majority majority = find_majority(standings, difference.about.sequence);
  if (!majority.is_clear || majority.others.empty()) return both();
  const bool blames_one = contains(majority.others, rank()) != contains(majority.others, difference.peer);
  const int odd = majority.others.front(), usual = majority.most.front();
  const auto at = [&](int r) { return standings[static_cast<std::size_t>(r)].at; };
  const std::string sentence = blames_one ? difference.sentence : compare(usual, at(usual), odd, at(odd));
  return mismatch_of(majority, fmt::format("{}; {} of {} ranks called what rank {} called", sentence,
                                           majority.most.size(), size(), usual));
}

// On the monitor's thread, or another that must not wait. The first counts.
void Team::accuse(const Difference& difference) {
  if (failure_.raised()) return;
  try {
    std::call_once(accused_,
                   [&] { judge_ = system().start("rondo-judge", [this, difference] { fail(judge(difference)); }); });
  } catch (const std::system_error&) {  // no thread: what is known without asking
    fail(either_of(ErrorCode::mismatch, difference.sentence, rank(), difference.peer));
  }
}

}  // namespace rondo::comm
