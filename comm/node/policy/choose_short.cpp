// SPDX-License-Identifier: Apache-2.0
// Short calls: whether a call is one, and where what it brings lies.
#include <algorithm>
#include <numeric>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {
namespace {

using namespace threshold;

static_assert(std::max({kShortOfTwo, kShortOfMany, kShortParts, kMostBehindOfTwo, kMostBehind}) <= Arrival::kBody);

constexpr std::size_t most_of_crowd(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return kShortSumOfCrowd;
    case Collective::all_gather:
    case Collective::all_gather_v:
      return kShortGatheredOfCrowd;
    case Collective::broadcast:
    case Collective::all_to_all:
      return kShortOfCrowd;
    case Collective::gather:
    case Collective::gather_v:
    case Collective::scatter:
    case Collective::scatter_v:
      return kShortBlocksOfCrowd;
    case Collective::reduce:
      return kShortReduceOfCrowd;
    case Collective::reduce_scatter:
    case Collective::all_to_all_v:
    case Collective::send:
    case Collective::recv:
    case Collective::barrier:
      break;
  }
  return kShortPartsOfCrowd;
}

bool has_parts(const CollectiveRow& row) { return has_block_per_rank(row.send); }

}  // namespace

Lengths lengths_of(const Call& call, int ranks) {
  const auto counts = counts_of(call);
  const bool has_parts = row_of(call.collective).send != Extent::one;  // one for each rank is sent
  if (counts.empty()) return {call.count, call.count * (has_parts ? as_size(ranks) - 1 : 1)};
  const std::size_t longest = *std::ranges::max_element(counts);
  if (!has_parts) return {longest, longest};
  return {longest, std::accumulate(counts.begin(), counts.end(), std::size_t{0}) - counts[as_size(call.root)]};
}

bool are_even(std::size_t a, std::size_t b) { return std::max(a, b) - std::min(a, b) <= std::max(a, b) / kEvenPart; }

bool exchanges(const CollectiveRow& row) { return row.send != Extent::none && row.recv != Extent::none && !row.rooted; }

std::size_t Chooser::most_of_short_block(Collective collective) const {
  const CollectiveRow& row = row_of(collective);
  if (facts_.ranks == 2 && (exchanges(row) || !facts_.crowded)) return kShortOfTwo;
  const std::size_t brought = facts_.crowded ? most_of_crowd(collective) : has_parts(row) ? kShortParts : kShortOfMany;
  return has_parts(row) ? brought / as_size(facts_.ranks) : brought;
}

bool Chooser::is_short(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  if (row.is_message() || row.has_own_counts()) return false;  // nobody knows what others bring
  const std::size_t most = most_of_short_block(call.collective);
  if (row.send != Extent::none && lengths_of(call, facts_.ranks).longest > most / size_of(call.dtype)) return false;
  return !goes_to_ring(call) || larger_count(call, facts_.ranks) * size_of(call.dtype) <= facts_.ring.capacity();
}

bool Chooser::goes_to_ring(const Call& call) const {
  if (facts_.ranks == 2 ? hands_over(call) : !facts_.crowded) return false;
  const std::size_t most = facts_.crowded ? kMostBehind : kMostBehindOfTwo;
  return lengths_of(call, facts_.ranks).brought > most / size_of(call.dtype);
}

bool Chooser::hands_over(const Call& call) const {
  const auto counts = counts_of(call);
  return facts_.ranks == 2 && exchanges(row_of(call.collective)) && (counts.empty() || are_even(counts[0], counts[1]));
}

ShortChoice Chooser::choose_short(const Call& call, const ShortRole& role) const {
  const CollectiveRow& row = row_of(call.collective);
  const Lengths lengths = lengths_of(call, facts_.ranks);
  const std::size_t element = size_of(call.dtype), brought = lengths.brought * element;
  const auto counts = counts_of(call);
  const std::size_t own = !has_parts(row) ? 0 : counts.empty() ? role.block : counts[as_size(call.root)] * element;
  ShortChoice choice;
  choice.in_ring = goes_to_ring(call);
  choice.weighs = brought > kMostUnweighed && !hands_over(call);
  const bool in_order = brought + own >= kLeastInOrder || role.ranks_on_its_core > 2;
  choice.yields = call.collective == Collective::barrier || (exchanges(row) && in_order);
  const bool two_cores = facts_.ranks == 2 && !facts_.crowded;
  choice.leaves_early = two_cores && !role.awaits;
  if (call.collective == Collective::broadcast && facts_.crowded) choice.polls = kPollsForRoot;
  const bool come_together = facts_.ranks > 1 && !row.rooted && !facts_.crowded;
  if (come_together && (row.reduces || role.block < kMostInstant)) {
    choice.together = true;
    choice.holds_back = row.reduces && brought > Arrival::kPayload ? kHeldBackBehind : kHeldBack;
  } else if (two_cores && row.rooted && role.awaits && brought > Arrival::kPayload && !choice.in_ring) {
    choice.holds_back = kHeldBackFromOne;
  }
  return choice;
}

}  // namespace rondo::comm
