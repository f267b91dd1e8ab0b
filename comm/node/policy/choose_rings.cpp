// SPDX-License-Identifier: Apache-2.0
// Calls through the rings: how sums are made, the chunks, the places that these take, and the stores of results.
#include <algorithm>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {
namespace {

using namespace threshold;

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
std::size_t round_up(std::size_t a, std::size_t to) { return divide_up(a, to) * to; }

}  // namespace

// The reused stretch has room for two places where everybody puts, and in every ring for one of an only source.
std::size_t Chooser::most_place_bytes(int source) const {
  return facts_.ring.reused.bytes / (source == RingPlan::kEverybody ? 2 : 1) / kLine * kLine;
}

bool Chooser::fits_rings(int ranks) const { return most_place_bytes(RingPlan::kEverybody) >= kLine * as_size(ranks); }

// That a rank publishes at a time.
std::size_t Chooser::chunk_bytes() const {
  return std::max<std::size_t>(tuning_.chunk_bytes / as_size(facts_.ranks), kLeastChunk);
}

RingSum Chooser::sum_of(const Call& call) const {
  const std::size_t bytes = call.count * size_of(call.dtype);
  if (bytes <= whole_limit(call.collective).bytes) return RingSum::whole;
  const bool once = call.collective == Collective::all_reduce && shares_sums() && bytes <= most_at_once() &&
                    (facts_.ranks > kFewRanks || bytes <= kMostTogetherOfFew);
  return once ? RingSum::together : RingSum::parts;
}

Chooser::Limit Chooser::whole_limit(Collective collective) const {
  if (collective != Collective::all_reduce && collective != Collective::reduce) return {};
  if (pours_to_root(collective)) return {"poured_bytes", tuning_.poured_bytes};
  if (facts_.ranks <= 2) return {"flat_bytes_of_two", tuning_.flat_bytes_of_two};
  if (shares_sums()) return {};
  return {"flat_bytes", tuning_.flat_bytes};
}

// Of two ranks with a core each, whose inputs the caches hold: the root adds a chunk while the other puts the next one.
// To put, add and fetch half of it each is as much work, one after the other.
bool Chooser::pours_to_root(Collective collective) const {
  return collective == Collective::reduce && facts_.ranks == 2 && !facts_.crowded;
}

// Pieces are as many as ranks at most, or cores would have none.
bool Chooser::shares_sums() const {
  return facts_.ranks > 2 && facts_.crowded && as_size(facts_.ranks) <= ClaimLines::kPieces;
}

std::size_t Chooser::most_at_once() const { return std::min<std::size_t>(facts_.ring.capacity(), tuning_.chunk_bytes); }

std::size_t Chooser::piece_of_sum(std::size_t count, std::size_t element) const {
  const std::size_t pieces = std::clamp<std::size_t>(count * element / kLeastPiece, 1, as_size(facts_.cores));
  return round_up(divide_up(count, pieces), kRound);
}

RingPlan Chooser::plan(const RingCall& ring) const {
  const Call& call = ring.call;
  const std::size_t ranks = as_size(facts_.ranks), element = size_of(call.dtype), block = ring.longest * element;
  RingPlan plan;
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return plan_sum(ring);
    case Collective::reduce_scatter:
      return cut(ring.longest, element, ranks, facts_.crowded ? crowds_chunk(block * ranks) : chunk_bytes());
    case Collective::broadcast:
      plan = cut(call.count, element, 1, lopsided_bytes(call.count * element, chunk_bytes()), call.root);
      plan.apart = true;  // of a scatter the piece that a root has for itself is one
      return plan;
    case Collective::scatter:
    case Collective::scatter_v:
      return cut(ring.longest, element, ranks, lopsided_bytes(block * ranks, tuning_.chunk_bytes), call.root);
    case Collective::gather:
    case Collective::gather_v:
      plan = cut(ring.longest, element, 1, lopsided_bytes(block, chunk_bytes()));
      plan.sink = call.root;
      break;
    case Collective::all_gather:
    case Collective::all_gather_v: {
      // Where ranks take turns on cores and the caches hold what all of them get, a single chunk: one more costs turns.
      const bool at_once = facts_.crowded && ring.larger * ranks <= tuning_.cached_bytes;
      plan = cut(ring.longest, element, 1, at_once ? std::max(block, chunk_bytes()) : chunk_bytes());
      break;
    }
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      plan = cut(ring.longest, element, ranks, tuning_.chunk_bytes);
      break;
    case Collective::send:
    case Collective::recv:
    case Collective::barrier:
      return plan;
  }
  plan.handed = plan.handed && facts_.ranks == 2 && ring.even;
  return plan;
}

// In parts chunks are twice as long, since a rank folds a part of each. Where ranks take turns on cores, each chunk
// more costs every rank a turn. Two ranks with a core each whose inputs the caches hold do better with a single place
// there than with another one to bring the next chunk to. Ranks must agree, so where one of them stores its result (in
// place, past the caches) may not matter here.
RingPlan Chooser::plan_sum(const RingCall& ring) const {
  const Call& call = ring.call;
  const std::size_t element = size_of(call.dtype), bytes = call.count * element;
  RingPlan plan;
  if (sum_of(call) == RingSum::whole) {
    const std::size_t poured = std::clamp(bytes / kPours, kLeastPoured, kMostPoured);
    plan = cut(call.count, element, 1, pours_to_root(call.collective) ? poured : chunk_bytes());
  } else {
    const bool one_place = facts_.ranks == 2 && 2 * bytes < tuning_.cached_bytes;
    const std::size_t chunk = facts_.crowded ? crowds_chunk(bytes) : (one_place ? 4 : 2) * chunk_bytes();
    plan = cut(call.count, element, 1, chunk);
    plan.folds = plan.handed = true;
  }
  if (call.collective == Collective::reduce) plan.sink = call.root;
  return plan;
}

// Of a sum that takes so many bytes.
std::size_t Chooser::crowds_chunk(std::size_t bytes) const {
  const bool few = facts_.ranks <= kFewRanks && bytes > most_at_once();
  return few ? std::min(tuning_.chunk_bytes, tuning_.few_sum_chunk_bytes) : tuning_.chunk_bytes;
}

// Where one rank writes and others read, or one reads and others write, small chunks let both go on at once. Where
// ranks take turns on cores they do not, and short ones cost turns.
std::size_t Chooser::lopsided_bytes(std::size_t bytes, std::size_t most) const {
  const std::size_t half = std::clamp(bytes / 2, kLeastHalf, kLeastChunk);
  return std::clamp(bytes / 4, facts_.crowded ? kLeastChunk : half, most);
}

// A chunk's place holds `pieces` pieces of so many elements. Chunks are about equally long, so that nobody waits for
// all of a last one.
RingPlan Chooser::cut(std::size_t count, std::size_t element, std::size_t pieces, std::size_t most_bytes,
                      int source) const {
  const std::size_t bytes = std::min(most_bytes, most_place_bytes(source));
  const std::size_t most = std::max<std::size_t>(bytes / pieces / element, 1);
  const std::size_t chunks = std::max<std::size_t>(divide_up(count, most), 1);
  const std::size_t equal = std::max<std::size_t>(divide_up(count, chunks), 1);
  const std::size_t step = chunks == 1 ? equal : std::min(round_up(equal, kRound), most);
  return {.count = count,
          .step = step,
          .place_bytes = step * pieces * element,
          .handed = handed(count * element, pieces),
          .source = source};
}

bool Chooser::handed(std::size_t block, std::size_t pieces) const {
  return block <= kMostHanded && block * pieces <= tuning_.handed_bytes;
}

bool Chooser::hands_over(const RingPlan& plan) const {
  return facts_.ranks == 2 && plan.handed && plan.source == RingPlan::kEverybody && plan.sink == RingPlan::kEverybody;
}

RingCourse Chooser::course(const RingPlan& plan) const {
  RingCourse course;
  std::size_t& place = course.place_bytes;
  place = round_up(plan.place_bytes, kLine);
  const std::size_t gap = plan.apart ? facts_.ring.gap_behind(place) : 0;
  if (place + gap <= most_place_bytes(plan.source)) place += gap;
  course.chunks = divide_up(plan.count, plan.step);
  if (course.chunks == 0) return course;
  course.in_line = course.chunks == 1 && !plan.folds && plan.place_bytes <= Arrival::kPayload;
  if (hands_over(plan)) {
    const std::size_t folded = std::clamp<std::size_t>(facts_.ring.shared.bytes / place, 1, kFoldedPlaces);
    course.hands_over = true;
    course.ahead = plan.folds ? std::min(folded, course.chunks) : 1;
    course.in_turn = plan.folds && course.chunks == 1 && place <= facts_.ring.shared.bytes / 2 / kLeastTurns;
    return course;
  }
  course.rings_used = plan.source == RingPlan::kEverybody ? 1 : as_size(facts_.ranks);
  const auto places_in = [&](std::size_t bytes) {
    return std::max<std::size_t>(std::min(ahead_bytes(plan, course.rings_used), bytes) / place, 1);
  };
  const std::size_t whole = facts_.ring.capacity(), reused = reused_bytes(plan, place);
  std::size_t in_a_ring = places_in(whole);
  const bool fits = place <= whole && course.chunks <= in_a_ring * course.rings_used;
  course.reuses = !fits && reused >= place;
  if (course.reuses) in_a_ring = places_in(reused);
  course.ahead = std::min(in_a_ring * course.rings_used, course.chunks);
  return course;
}

// In a ring. Where ranks share cores, what a single source puts there is still in a core's own cache, beside what they
// write, when the last of that core reads it.
std::size_t Chooser::ahead_bytes(const RingPlan& plan, std::size_t rings_used) const {
  if (plan.source == RingPlan::kEverybody || !facts_.crowded) return tuning_.ahead_bytes;
  return std::min<std::size_t>(tuning_.ahead_bytes, tuning_.warm_bytes / rings_used);
}

// Of a ring, for a call of more chunks than can be on their way at once. Where all put, a rank is never far ahead of
// the others, so half of it is enough, or two places; a single source goes ahead as far as it can.
std::size_t Chooser::reused_bytes(const RingPlan& plan, std::size_t place_bytes) const {
  const std::size_t whole = facts_.ring.reused.bytes;
  return plan.source == RingPlan::kEverybody ? std::max(whole / 2, std::min(whole, 2 * place_bytes)) : whole;
}

// Where everybody copies most of its result nothing else goes on while stores past the caches wait, and strings through
// them cost less than loops. Of sums in place the caches still hold a chunk when its result comes there: where ranks
// take turns on cores, only of shorter calls.
RingStores Chooser::stores(const RingCall& ring) const {
  const Call& call = ring.call;
  const CollectiveRow& row = row_of(call.collective);
  const bool sums_alone = row.reduces && row.send == Extent::world;
  const bool copies_all = !row.rooted && !sums_alone && facts_.copies_as_strings;
  const std::size_t demand = cache_demand(call, ring.larger, facts_.ranks);
  const bool from_memory = demand >= (copies_all ? tuning_.streaming_string_bytes : tuning_.streaming_bytes);
  const bool warm = !facts_.crowded || demand < (copies_all ? tuning_.cold_string_bytes : tuning_.cold_bytes);
  const bool streams = from_memory && !(warm && row.reduces && is_in_place(call, ring.larger));
  return {from_memory, streams ? kernels::Stores::streaming : kernels::Stores::plain};
}

}  // namespace rondo::comm
