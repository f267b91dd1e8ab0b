// SPDX-License-Identifier: Apache-2.0
#include "comm/team/standing.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/team/team.hpp"

namespace rondo::comm {
namespace {

template <class Matches>
std::vector<int> ranks_that(std::span<const Standing> standings, Matches matches) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < standings.size(); ++r) {
    if (matches(standings[r])) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

}  // namespace

// Of those that have not entered it, those furthest behind: the others may wait for them. One that waits itself does so
// for somebody, who may be one that does not answer.
std::vector<int> find_late(std::span<const Standing> standings, std::uint64_t sequence) {
  std::uint64_t furthest = sequence;
  for (const Standing& s : standings) {
    if (s.known) furthest = std::min(furthest, s.at.sequence);
  }
  const auto is_last = [&](const Standing& s) {
    return s.known && s.at.sequence == furthest && s.at.sequence < sequence;
  };
  auto late = ranks_that(standings, [&](const Standing& s) { return is_last(s) && (s.stopped || !s.waits); });
  if (late.empty()) late = ranks_that(standings, [](const Standing& s) { return !s.known; });
  if (late.empty()) late = ranks_that(standings, is_last);
  if (late.empty()) late = ranks_that(standings, [](const Standing& s) { return s.stopped; });
  return late;
}

Majority find_majority(std::span<const Standing> standings, std::uint64_t sequence) {
  const auto at = [&](int rank) { return standings[static_cast<std::size_t>(rank)].at; };
  const auto there = ranks_that(standings, [&](const Standing& s) { return s.known && s.at.sequence == sequence; });
  return rondo::find_majority(there, [&](int a, int b) { return compare(a, at(a), b, at(b)).empty(); });
}

PackedMessage::PackedMessage(bool sends, int peer)
    : word(1 + (sends ? 1U : 0U) + 2 * static_cast<std::uint64_t>(std::max(peer, -1) + 2)) {}

std::string PackedMessage::describe() const {
  if (word == 0) return {};
  const bool sends = (word - 1) % 2 != 0;
  const std::uint64_t peer = (word - 1) / 2 - 1;
  return fmt::format("{} {}", sends ? "send to" : "recv from",
                     peer == 0 ? "any rank" : fmt::format("rank {}", peer - 1));
}

std::string describe_late(int rank, const Placement& placement, const Standing& standing) {
  const std::string who = fmt::format("rank {} (host {}, pid {})", rank, placement.host, placement.pid);
  const bool none = standing.at.sequence == 0;
  const std::string state = standing.stopped ? " is stopped" : !standing.known ? " does not answer" : "";
  if (!standing.known && none) return fmt::format("; {}{}, and what it has entered is not known", who, state);
  const std::string last =
      fmt::format("the last collective that {} is known to have entered is {}",
                  state.empty() ? who : fmt::format("rank {}", rank), none ? "none" : describe(standing.at));
  const std::string message = standing.message.describe();
  const std::string now = !message.empty()          ? ", and it waits in " + message
                          : standing.waits && !none ? ", where it waits for others"
                                                    : "";
  return (state.empty() ? "; " + last : fmt::format("; {}{}; {}", who, state, last)) + now;
}

}  // namespace rondo::comm
