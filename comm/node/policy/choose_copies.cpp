// SPDX-License-Identifier: Apache-2.0
// Copies of ordinary memory by the kernel: whether to try them, and where to begin. Measured by 2, 4 and 8 ranks on two
// cores of a Xeon.
#include <algorithm>
#include <cstdint>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/node/ways/balance.hpp"

namespace rondo::comm {

using namespace threshold;

// To meet, and once more at the end, costs ranks that share cores a turn each; from or to a root most wait for it
// alone. Where two have a core each, one of them alone copies a short block from or to a root.
bool Chooser::may_copy(const Call& call) const {
  if (!facts_.copies_memory || facts_.ranks == 1) return false;
  const CollectiveRow& row = row_of(call.collective);
  if (row.send == Extent::none || (row.reduces && !copies_sums(call))) return false;
  const std::uint64_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  const bool is_for_all = row.send == Extent::one && !row.recv_at_root;
  if (facts_.crowded && is_for_all) return false;
  const std::uint64_t least_block = facts_.crowded && !row.rooted ? tuning_.single_copy_crowd_block_bytes : 0;
  const bool counts_block = copies_by_root(row) && row.send != row.recv;  // of two ranks
  return bytes / as_size(facts_.ranks) >= least_block && (counts_block ? bytes / 2 : bytes) >= least_copied(call).bytes;
}

Chooser::Limit Chooser::least_copied(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  if (facts_.crowded && facts_.ranks == 2)
    return {"single_copy_crowd_bytes_of_two", tuning_.single_copy_crowd_bytes_of_two};
  if (facts_.crowded) return {"single_copy_crowd_bytes", tuning_.single_copy_crowd_bytes};
  if (row.reduces && !row.rooted) return {"single_copy_sum_bytes", tuning_.single_copy_sum_bytes};
  if (copies_by_root(row)) return {"single_copy_root_bytes", tuning_.single_copy_root_bytes};
  return {"single_copy_bytes", tuning_.single_copy_bytes};
}

Reason Chooser::why_copied(const Call& call) const {
  const Limit least = least_copied(call);
  return {"one copy by the kernel is tried, or was faster", least.name, least.bytes};
}

bool Chooser::copies_by_root(const CollectiveRow& row) const { return row.rooted && both_copy() && pages_are_cheap(); }

// A factor would come with the arrivals in the place of the times. Where pages are dear a sum for both is not worth a
// try: the rings take no more than what the kernel's copies take alone.
bool Chooser::copies_sums(const Call& call) const {
  const std::size_t most = call.collective == Collective::all_reduce ? kMostSummedForBoth : kMostSummed;
  return both_copy() && (row_of(call.collective).rooted || pages_are_cheap()) &&
         call.op != ReduceOp::premultiplied_sum && larger_count(call, facts_.ranks) <= most / size_of(call.dtype);
}

// 0.1 us on a Xeon. On EPYCs it costs 0.3, and one copy is hardly ever faster than two.
bool Chooser::pages_are_cheap() const { return facts_.copied_page_us <= kCheapPageUs; }

bool Chooser::copies_promise(const Call& call, bool in_place) const {
  constexpr std::size_t kNever = 0, kAlways = SIZE_MAX;
  const auto too_long = [&]() -> std::size_t {  // there rings are faster, most of them past the caches
    switch (call.collective) {
      case Collective::broadcast:
        return both_copy() ? kLeastRings : kNever;
      case Collective::all_gather:
      case Collective::all_gather_v:
        return both_copy() ? in_place ? kLeastRings : kLeastRingsOfGathered : kNever;
      case Collective::all_to_all:
        return both_copy() ? kLeastRingsOfTwo : kLeastRingsExchanged / as_size(facts_.ranks);
      case Collective::gather:
      case Collective::gather_v:
        return kLeastRings;
      case Collective::scatter:  // blocks from a root,
      case Collective::scatter_v:
      case Collective::all_reduce:  // and sums of both
      case Collective::reduce:
      case Collective::reduce_scatter:
      case Collective::all_to_all_v:
      case Collective::send:
      case Collective::recv:
      case Collective::barrier:
        break;
    }
    return kAlways;
  };
  return pages_are_cheap() && larger_count(call, facts_.ranks) * size_of(call.dtype) < too_long();
}

bool Chooser::copies_blocks(std::size_t longest) const {
  const Call even{.collective = Collective::all_to_all, .count = longest, .dtype = DataType::u8};
  return may_copy(even) && copies_promise(even, false);
}

bool Chooser::both_copy(std::size_t bytes) const { return both_copy() && bytes > kMostAlone; }

bool Chooser::root_adds_alone(std::size_t bytes) const { return bytes <= kMostAddedAlone; }

// Of two ranks with a core each both copy: of a broadcast a half each, of blocks from or to a root, which has one of
// its own to copy, the root a quarter, and of others each what it gets. Who is not the root of a reduce brings it the
// sums, and so makes fewer. Else whoever has the block to itself copies it, so that all cores have something to do.
int Chooser::copied_parts(Collective collective, bool both) const {
  constexpr int kAll = Balance::kParts, kNone = 0, kHalf = kAll / 2, kQuarter = kAll / 4;
  switch (collective) {
    case Collective::broadcast:
      return both ? kHalf : kAll;
    case Collective::scatter:
    case Collective::scatter_v:
      return both ? kAll - kQuarter : kAll;
    case Collective::gather:
    case Collective::gather_v:
      return both ? kQuarter : kNone;
    case Collective::reduce:
      return kHalf + kHalf / 4;
    case Collective::all_reduce:
      return kHalf;
    case Collective::all_gather:  // exchanges,
    case Collective::all_gather_v:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::reduce_scatter:  // and each rank's own sums
    case Collective::send:
    case Collective::recv:
    case Collective::barrier:
      break;
  }
  return kAll;
}

// Of blocks from or to a root, which has most of the buffers and so the most to copy: they fill the cache of its core
// before the rule says.
kernels::Stores Chooser::stores_beside_copies(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  const std::uint64_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  const bool fills = copies_by_root(row) && row.send != row.recv && bytes >= tuning_.streaming_copied_bytes;
  return fills ? kernels::Stores::streaming : stores_in_place(call);
}

}  // namespace rondo::comm
