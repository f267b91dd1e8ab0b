// SPDX-License-Identifier: Apache-2.0
// Straight between buffers that peers reach: who moves what, once all have met.
#include <algorithm>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

using namespace threshold;

InPlace Chooser::in_place(Collective collective, const Reached& reached) const {
  const bool shared = reached.all_send && reached.all_receive && as_size(facts_.ranks) <= ClaimLines::kPieces;
  switch (collective) {
    case Collective::all_reduce:
      return {reached.all_send && reached.all_receive, false, shared};
    case Collective::reduce:
      return {reached.all_send && reached.root_receives, false, shared};
    case Collective::reduce_scatter:
      return {reached.all_send, false, shared};
    case Collective::broadcast:
      return {reached.root_sends, reached.all_receive, shared};
    case Collective::all_gather:
    case Collective::all_gather_v:
      return {reached.all_send || reached.all_receive, reached.all_receive, shared};
    case Collective::gather:
    case Collective::gather_v:
      return {reached.all_send || reached.root_receives, reached.root_receives, shared};
    case Collective::scatter:
    case Collective::scatter_v:
      return {reached.root_sends, false, shared};
    case Collective::all_to_all:
      return {reached.all_send || reached.all_receive, !reached.all_send, shared};
    case Collective::all_to_all_v:
    case Collective::send:
    case Collective::recv:
    case Collective::barrier:
      break;
  }
  return {};
}

InPlace Chooser::with_root(Collective collective, bool reached) const {
  return {.goes = reached, .pushes = row_of(collective).recv_at_root, .shared = false};
}

std::string_view Chooser::why_not_straight(bool may_copy, bool root_alone) const {
  if (root_alone) return "the root's buffer is not within reach";
  return may_copy ? "one copy by the kernel is slower" : "not all of its buffers are within reach";
}

// What all but the root need is the root's, and what it needs is theirs to say that they are done. Not a sum.
bool Chooser::copies_for_root_alone(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  return facts_.ranks > 2 && row.rooted && !row.reduces;
}

// Not a longer broadcast, which is pushed, so that the root's buffer is read once.
bool Chooser::asks_root_alone(const Call& call) const {
  const std::size_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  const bool pulled = call.collective != Collective::broadcast || (facts_.crowded && bytes <= kMostPulled);
  return copies_for_root_alone(call) && pulled;
}

// Where anybody can do anybody's share, what is short and cut into parts that are nobody's in particular is cut by
// cores.
int Chooser::shares(const Call& call, const InPlace& way) const {
  const bool is_cut = call.collective == Collective::all_reduce || call.collective == Collective::reduce ||
                      (call.collective == Collective::broadcast && way.pushes);
  const std::size_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  return way.shared && is_cut && bytes <= kMostByCores ? facts_.cores : facts_.ranks;
}

bool Chooser::sweeps(std::size_t bytes) const {
  return bytes * as_size(facts_.ranks) >= (facts_.crowded ? kLeastSweptInCrowd : kLeastSwept);
}

bool Chooser::in_halves(std::size_t first, std::size_t second, std::size_t element) const {
  return !are_even(first, second) && (first + second) * element >= kLeastHalved;
}

kernels::Stores Chooser::stores_in_place(const Call& call) const {
  const std::size_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  const bool beyond_caches = cache_demand(call, bytes, facts_.ranks) >= tuning_.streaming_in_place_bytes;
  return beyond_caches ? kernels::Stores::streaming : kernels::Stores::plain;
}

}  // namespace rondo::comm
