// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/ways/cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/setup/placement.hpp"

namespace rondo::test {
namespace {

using comm::as_size;
using comm::bytes_text;
using comm::Chooser;
using comm::RingCall;

constexpr std::size_t kElement = 4;

comm::NodeFacts facts_of(const Cell& cell) {
  const bool crowded = cell.ranks > cell.cores;
  const std::size_t ring_bytes = comm::fit_fifos(comm::Config{}, cell.ranks).ring_bytes;
  return {.ranks = cell.ranks,
          .cores = std::min(cell.cores, cell.ranks),
          .crowded = crowded,
          .copies_memory = cell.memory != Memory::ordinary,
          .copied_page_us = cell.machine.copied_page_us,
          .copies_as_strings = cell.machine.copies_as_strings,
          .ring = comm::lay_out_ring(ring_bytes, cell.ranks, crowded)};
}

comm::Tuning tuning_of(const Cell& cell) {
  comm::Tuning tuning;
  comm::set_value(tuning, &comm::Tuning::streaming_bytes, cell.machine.streaming_bytes);
  return tuning;
}

bool has_blocks(Collective collective) {
  const CollectiveRow& row = row_of(collective);
  return row.send != row.recv || row.send == Extent::world || row.send == Extent::counts;
}

// As the last rank makes it, who is the root of what has one. Nobody looks at what lies in the buffers.
struct OneCall {
  OneCall(const Cell& cell, std::size_t bytes) : counts(as_size(cell.ranks)) {
    const CollectiveRow& row = row_of(cell.collective);
    call.collective = cell.collective;
    call.dtype = DataType::f32;
    call.count = bytes / kElement / (has_blocks(cell.collective) ? as_size(cell.ranks) : 1);
    call.root = row.rooted ? cell.ranks - 1 : -1;
    std::ranges::fill(counts, call.count);
    if (row.send == Extent::counts) call.send_counts = counts;
    if (row.recv == Extent::counts) call.recv_counts = counts;
    constexpr std::uintptr_t kSend = std::uintptr_t{1} << 40, kElsewhere = std::uintptr_t{1} << 41;
    const auto distance = static_cast<std::uintptr_t>(comm::in_place_distance(call, cell.ranks - 1)) * kElement;
    call.send = reinterpret_cast<const void*>(kSend);
    call.recv = reinterpret_cast<void*>(cell.in_place ? kSend + distance : kElsewhere);
  }
  std::vector<std::size_t> counts;
  Call call{};
};

std::string in_words(kernels::Stores stores) { return stores == kernels::Stores::streaming ? ", past the caches" : ""; }

std::string places(std::size_t number) { return fmt::format("{} place{}", number, number == 1 ? "" : "s"); }

// Of its places in the rings.
std::string in_words(const comm::RingPlan& plan, const comm::RingCourse& course) {
  std::string text;
  if (course.hands_over) {
    text += course.in_turn ? ", handed over by turns" : ", handed over";
    if (course.ahead > 1) text += ", " + places(course.ahead);
  } else if (course.reuses) {
    text += fmt::format(", {}, reused", places(course.ahead));
  } else if (course.ahead == course.chunks) {
    text += ", each in its place";
  } else {
    text += ", " + places(course.ahead);
  }
  if (course.rings_used > 1) text += " of all rings";
  if (course.in_line) text += ", or in the arrival line";
  if (course.place_bytes > plan.place_bytes + comm::kLine) text += ", gaps";
  return text;
}

std::string in_words(comm::RingSum sum) {
  switch (sum) {
    case comm::RingSum::whole:
      return ", each sums all";
    case comm::RingSum::together:
      return ", a sum for all";
    case comm::RingSum::parts:
      return ", sums in parts";
  }
  return {};
}

Answer through_rings(const Chooser& chooser, const RingCall& ring, std::string before) {
  const comm::RingStores stores = chooser.stores(ring);
  const std::string after = fmt::format("{}{}", stores.from_memory ? ", from memory" : "", in_words(stores.result));
  const Collective collective = ring.call.collective;
  if (collective == Collective::all_reduce || collective == Collective::reduce) {
    const comm::RingSum sum = chooser.sum_of(ring.call);
    before += in_words(sum);
    if (sum == comm::RingSum::together) {
      const std::size_t piece = chooser.piece_of_sum(ring.call.count, kElement);
      return {before, (ring.call.count + piece - 1) / piece, piece * kElement, after};
    }
  }
  const comm::RingPlan plan = chooser.plan(ring);
  const comm::RingCourse course = chooser.course(plan);
  if (course.chunks == 0) return {before + ", nothing to move", 0, 0, after};
  return {before, course.chunks, plan.place_bytes, in_words(plan, course) + after};
}

Answer of_board(const Cell& cell, const Chooser& chooser, const Call& call) {
  if (call.collective == Collective::barrier) return {"board, a meeting", 0, 0, ""};
  return through_rings(chooser,
                       {.call = call, .larger = comm::larger_count(call, cell.ranks) * kElement, .longest = call.count},
                       "board");
}

Answer of_short_call(const Cell& cell, const Chooser& chooser, const Call& call) {
  const CollectiveRow& row = row_of(call.collective);
  const comm::Lengths lengths = comm::lengths_of(call, cell.ranks);
  const int on_a_core = (cell.ranks + cell.cores - 1) / cell.cores;
  comm::ShortRole role{.block = call.count * kElement, .awaits = true, .ranks_on_its_core = on_a_core};
  const comm::ShortChoice reads = chooser.choose_short(call, role);
  role.awaits = false;
  const bool leaves = row.rooted && lengths.longest != 0 && chooser.choose_short(call, role).leaves_early;
  std::string text = "short_call";
  const bool beside = lengths.brought * kElement <= comm::Arrival::kPayload;
  text += reads.in_ring ? ", in a ring" : beside ? ", in the arrival line" : ", behind the arrival line";
  if (reads.weighs) text += ", past the caches to far cores";
  if (reads.yields) text += ", in order";
  if (reads.holds_back != 0) text += fmt::format(", looks after {}", reads.holds_back);
  if (reads.polls != 0) text += fmt::format(", {} polls", reads.polls);
  if (leaves) text += ", leaves early";
  return {text, 0, 0, ""};
}

// When the call before was alike.
Answer of_counted(const Cell& cell, const Chooser& chooser, const Call& call) {
  const std::size_t longest = call.count * kElement;
  const bool reach = cell.memory == Memory::window, copied = cell.memory == Memory::copied;
  comm::Lead lead = chooser.lead(0, false);
  comm::Straight straight{};
  for (int i = 0; i < 3; ++i) {
    straight = chooser.straight(longest, call.count <= lead.part / kElement, reach, copied);
    lead = chooser.lead(longest, chooser.stays_straight(longest, straight));
  }
  const std::size_t part = std::min(longest, lead.part / kElement * kElement);
  std::string text = "counted";
  text += chooser.brings_in_ring(lead, part * (as_size(cell.ranks) - 1)) ? ", in a ring" : ", behind the arrival line";
  if (const int readings = chooser.holds_back_counted(part); readings != 0)
    text += fmt::format(", looks after {}", readings);
  if (part == longest) return {text + ", all of it", 0, 0, ""};
  text += fmt::format(", {} of each block", bytes_text(part));
  const RingCall ring{
      .call = call, .larger = comm::larger_count(call, cell.ranks) * kElement, .longest = call.count - part / kElement};
  if (straight == comm::Straight::no) return through_rings(chooser, ring, text + ", the rest over the board");
  text += straight == comm::Straight::pulls ? ", the rest zero_copy" : ", the rest single_copy";
  if (chooser.sweeps((longest - part) * as_size(cell.ranks))) text += ", to and fro";
  return {text, 0, 0, in_words(chooser.stores(ring).result)};
}

Answer of_windows(const Cell& cell, const Chooser& chooser, const Call& call, const comm::InPlace& way) {
  const std::size_t bytes = comm::larger_count(call, cell.ranks) * kElement;
  const bool sums = row_of(call.collective).reduces;
  std::string text = sums ? "zero_copy, sums" : way.pushes ? "zero_copy, pushed" : "zero_copy, fetched";
  if (way.shared) text += ", shares for anybody: " + std::to_string(chooser.shares(call, way));
  if (chooser.asks_root_alone(call)) text += ", later the root alone";
  if (chooser.sweeps(bytes)) text += ", to and fro";
  return {text, 0, 0, in_words(chooser.stores_in_place(call))};
}

Answer of_copies(const Cell& cell, const Chooser& chooser, const Call& call) {
  const CollectiveRow& row = row_of(call.collective);
  const std::size_t bytes = comm::larger_count(call, cell.ranks) * kElement;
  const bool begins = chooser.copies_promise(call, cell.in_place);
  std::string text = begins ? "single_copy first" : "single_copy tried";
  const bool alone = call.collective == Collective::reduce && chooser.root_adds_alone(bytes);
  if (alone) text += ", the root alone";
  const bool both = chooser.both_copy(call.count * kElement);
  if (!row.reduces && chooser.both_copy()) text += both ? ", both copy" : ", one copies";
  if (!alone) text += fmt::format(", {} of 64", chooser.copied_parts(call.collective, both));
  if (chooser.copies_for_root_alone(call)) text += ", later the root alone";
  if (chooser.sweeps(bytes)) text += ", to and fro";
  return {text, 0, 0, in_words(chooser.stores_beside_copies(call))};
}

}  // namespace

bool has_size(const Cell& cell, std::size_t bytes) {
  const std::size_t least = kElement * (has_blocks(cell.collective) ? as_size(cell.ranks) : 1);
  return bytes == 0 || (bytes >= least && cell.collective != Collective::barrier);
}

Answer answer_of(const Cell& cell, std::size_t bytes) {
  const Chooser chooser(facts_of(cell), tuning_of(cell));
  const OneCall one(cell, bytes);
  const Call& call = one.call;
  const comm::Start start = chooser.start(call, {});
  const bool may_reach = cell.memory == Memory::window, may_copy = chooser.may_copy(call);
  if (start.asks && chooser.why_not_ask(call, may_reach, may_copy).empty()) {
    const comm::InPlace way = chooser.in_place(
        call.collective,
        {.all_send = may_reach, .all_receive = may_reach, .root_sends = may_reach, .root_receives = may_reach});
    if (way.goes) return of_windows(cell, chooser, call, way);
    if (may_copy && !may_reach) return of_copies(cell, chooser, call);
  }
  switch (start.way) {
    case comm::Way::short_call:
      return of_short_call(cell, chooser, call);
    case comm::Way::counted:
      return of_counted(cell, chooser, call);
    case comm::Way::board:
    case comm::Way::two_level:
    case comm::Way::links:
      break;
  }
  return of_board(cell, chooser, call);
}

std::string ways_by_reach(const Cell& cell) {
  const Chooser chooser(facts_of(cell), tuning_of(cell));
  std::string text;
  const auto tell = [&](std::string_view which, const comm::Reached& reached) {
    const comm::InPlace way = chooser.in_place(cell.collective, reached);
    if (!way.goes) return;
    const bool sums = row_of(cell.collective).reduces;
    const std::string_view moved = sums ? "sums" : way.pushes ? "pushed" : "fetched";
    text += fmt::format("{}{}: {}{}", text.empty() ? "" : "; ", which, moved, way.shared ? ", by anybody" : "");
  };
  tell("all", {.all_send = true, .all_receive = true, .root_sends = true, .root_receives = true});
  tell("all that send", {.all_send = true, .root_sends = true});
  tell("all that receive", {.all_receive = true, .root_receives = true});
  tell("all that send and the root's", {.all_send = true, .root_sends = true, .root_receives = true});
  tell("the root's that it sends", {.root_sends = true});
  tell("the root's that receives", {.root_receives = true});
  return text;
}

}  // namespace rondo::test
