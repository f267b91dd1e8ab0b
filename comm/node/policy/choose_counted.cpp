// SPDX-License-Identifier: Apache-2.0
// An all_to_all_v: how much of every block comes with the arrivals, and whether the rest goes straight.
#include <algorithm>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

using namespace threshold;

// Room for the longest block, from everybody to everybody, if that is not too much and does not go straight.
Lead Chooser::lead(std::size_t longest, bool straight) const {
  const std::size_t others = as_size(std::max(facts_.ranks - 1, 1));
  const std::size_t most = straight ? 0 : std::min(kMostLead, facts_.ring.capacity());
  Lead lead;
  lead.head = (as_size(facts_.ranks) * Lead::kHeadOfEach + kRound - 1) / kRound * kRound;
  const std::size_t wanted = lead.head + others * (longest + longest / 8 + kRound);
  const std::size_t least = std::min(kLeastLead, facts_.ring.capacity());
  const std::size_t common = wanted <= most ? std::max(wanted, least) : least;
  lead.room = std::max(facts_.ranks == 2 ? Arrival::kBody : common, lead.head);
  lead.part = (lead.room - lead.head) / others / kRound * kRound;
  return lead;
}

// Two ranks hand lines over; what more of them bring is short behind the arrival, or lies in the ring.
bool Chooser::brings_in_ring(const Lead& lead, std::size_t brought) const {
  return facts_.ranks != 2 && lead.head + brought + as_size(facts_.ranks) * kRound > kMostBehind;
}

int Chooser::holds_back_counted(std::size_t kept) const {
  return !facts_.crowded && kept < kMostInstant ? kHeldBack : 0;
}

// has_come: all of it has with the arrivals, and would again.
Straight Chooser::straight(std::size_t longest, bool has_come, bool within_reach, bool in_processes) const {
  if (has_come && longest < kLeastStraight) return Straight::no;
  if (within_reach) return longest >= tuning_.direct_bytes ? Straight::pulls : Straight::no;
  return in_processes && copies_blocks(longest) ? Straight::fetches : Straight::no;
}

bool Chooser::stays_straight(std::size_t longest, Straight straight) const {
  return straight != Straight::no && longest >= kLeastStraight;
}

}  // namespace rondo::comm
