// SPDX-License-Identifier: Apache-2.0
// Which way a collective takes among ranks that share memory, in which chunks, and with which stores: pure functions of
// the call, the node, the tuning, and what was learned, which the caller hands in. Before the ranks meet they know the
// call alone; where buffers lie they know once they have. All ranks must come to the same answer, so what only one of
// them knows is an argument that says so. The ways do as they are told here and hold no thresholds.
// Roots, blocks and counts are those of the ranks that share the segment, by their index there (see Board).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rondo/collective.hpp>

#include "comm/node/policy/node_facts.hpp"
#include "comm/node/policy/reason.hpp"
#include "comm/setup/tuning.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

enum class Way : std::uint8_t { short_call, board, counted, two_level, links };

// Before the meeting.
struct Start {
  Way way = Way::board;
  bool asks = false;  // each time whether it can go straight between buffers
  Reason why{};
};

// Elements of the longest block, and that whoever brings most brings.
struct Lengths {
  std::size_t longest = 0, brought = 0;
};
Lengths lengths_of(const Call& call, int ranks);
bool are_even(std::size_t a, std::size_t b);  // of two ranks' blocks, about
bool exchanges(const CollectiveRow& row);     // everybody brings, and everybody takes from everybody

struct ShortRole {            // a rank's in a short call
  std::size_t block = 0;      // bytes that it gets from each rank that it reads
  bool awaits = false;        // anybody
  int ranks_on_its_core = 1;  // as it knows them now
};
struct ShortChoice {
  bool in_ring = false;       // what is brought lies there
  bool weighs = false;        // how it is written makes a difference
  bool yields = false;        // once: see Board::give_way
  bool leaves_early = false;  // of two ranks with a core each: before the other has come
  int polls = 0;              // for the rank that it awaits: see Board::await
  int holds_back = 0;         // readings of the clock before it looks for others,
  bool together = false;      // who come at the same time: see Board::readings
};

// A call on its way through the rings. Its blocks may lie elsewhere than the call says (on two levels).
struct RingCall {
  const Call& call;
  std::size_t larger = 0;   // bytes of a rank's larger buffer
  std::size_t longest = 0;  // elements of the longest block
  bool even = true;         // two ranks' blocks are about equally long
};
enum class RingSum : std::uint8_t {
  whole,     // who keeps the result reads all of everybody
  together,  // it is made once, by whoever is running
  parts      // each rank makes a part of it
};
struct RingPlan {  // the same on all ranks
  static constexpr int kEverybody = -2;

  std::size_t count = 0;        // elements, of the longest block
  std::size_t step = 1;         // of them in a chunk
  std::size_t place_bytes = 0;  // of a chunk in the rings;
  bool folds = false;
  bool apart = false;                          // places keep the rings' gap between each other
  bool handed = true;                          // of two ranks: each may write next where it was the last to read
  int source = kEverybody, sink = kEverybody;  // or the index of the one that publishes, or consumes
};
struct RingCourse {  // of a plan's chunks through the rings
  std::size_t place_bytes = 0, chunks = 0;
  std::size_t ahead = 0;       // chunks that a rank may have published and others not yet read,
  std::size_t rings_used = 1;  // in so many rings in turn
  bool in_line = false;        // a few bytes, if the arrival line is free
  bool hands_over = false;     // two ranks, places of each other's
  bool in_turn = false;        // these, another one each time
  bool reuses = false;         // places in the reused stretch, since they do not fit
};
struct RingStores {
  bool from_memory = false;  // what the call reads is not in the caches
  kernels::Stores result{};
};

// How blocks of an all_to_all_v come with the arrivals; bytes: of every block at most a part, behind a head.
struct Lead {
  static constexpr std::size_t kHeadOfEach = 32;  // what a rank says of the block for another

  std::size_t head = 0, room = 0, part = 0;
};
enum class Straight : std::uint8_t { no, pulls, fetches };  // fetches: the kernel copies

// Straight between buffers: which of them are within reach, as all know when they have met.
struct Reached {
  bool all_send = false, all_receive = false, root_sends = false, root_receives = false;
};
struct InPlace {
  bool goes = false;
  bool pushes = false;  // who has the data writes it where it belongs, instead of the other way round
  bool shared = false;  // anybody can do anybody's share
};

class Chooser {
 public:
  Chooser(const NodeFacts& facts, const Tuning& tuning) : facts_(facts), tuning_(tuning) {}
  const NodeFacts& facts() const { return facts_; }
  const Tuning& tuning() const { return tuning_; }

  // choose_way.cpp: before the meeting. named: what configured this way by name; empty: nothing did.
  Start start(const Call& call, std::string_view named) const;
  // Why such a call does not ask where buffers lie; empty: it does. in_vain: it was to, lately.
  std::string_view why_not_ask(const Call& call, bool may_reach, bool may_copy, bool in_vain = false) const;

  // choose_short.cpp
  std::size_t most_of_short_block(Collective collective) const;  // bytes that a rank may get from another
  bool is_short(const Call& call) const;
  bool hands_over(const Call& call) const;  // two ranks: each writes where it was the last to read as much
  ShortChoice choose_short(const Call& call, const ShortRole& role) const;

  // choose_rings.cpp
  bool fits_rings(int ranks) const;  // of a node
  RingSum sum_of(const Call& call) const;
  std::size_t piece_of_sum(std::size_t count, std::size_t element) const;  // elements, where it is made once for all
  RingPlan plan(const RingCall& call) const;
  RingCourse course(const RingPlan& plan) const;
  // Whether a rank of such a call writes only where it was the last to read, so that the lines are in its own caches:
  // two ranks, each of which takes what the other brings. What one folds it must put where it found the other's.
  bool hands_over(const RingPlan& plan) const;
  RingStores stores(const RingCall& call) const;  // of this rank

  // choose_counted.cpp: an all_to_all_v. longest: bytes of the longest block of the latest call, which all know.
  Lead lead(std::size_t longest, bool straight) const;
  bool brings_in_ring(const Lead& lead, std::size_t brought) const;  // bytes, of this rank
  int holds_back_counted(std::size_t kept) const;  // readings, see ShortChoice; bytes that this rank has from itself
  Straight straight(std::size_t longest, bool has_come, bool within_reach, bool in_processes) const;
  bool stays_straight(std::size_t longest, Straight straight) const;  // the next one's lead

  // choose_in_place.cpp: after the meeting.
  InPlace in_place(Collective collective, const Reached& reached) const;
  Reason why_in_place() const { return {"all that it needs is within reach", "direct_bytes", tuning_.direct_bytes}; }
  // Who has waited for the root alone moves its own.
  InPlace with_root(Collective collective, bool reached) const;
  // may_copy: the kernel might have copied. root_alone: nobody has waited for anybody else.
  std::string_view why_not_straight(bool may_copy, bool root_alone) const;
  bool asks_root_alone(const Call& call) const;  // where what it needs is the root's, and was within reach lately
  bool copies_for_root_alone(const Call& call) const;
  int shares(const Call& call, const InPlace& way) const;  // of the work
  bool sweeps(std::size_t bytes) const;                    // of a rank's larger buffer: see Sweep
  bool in_halves(std::size_t first, std::size_t second, std::size_t element) const;  // two ranks' blocks
  kernels::Stores stores_in_place(const Call& call) const;

  // choose_copies.cpp: by the kernel.
  Reason why_copied(const Call& call) const;
  bool may_copy(const Call& call) const;                       // and it is long enough to try
  bool copies_promise(const Call& call, bool in_place) const;  // more than the rings, before any such call was timed
  bool copies_blocks(std::size_t longest) const;               // both, of an all_to_all_v; bytes
  bool both_copy() const { return facts_.ranks == 2 && !facts_.crowded; }  // of two ranks with a core each
  bool both_copy(std::size_t bytes) const;                                 // these, a block of so many
  bool root_adds_alone(std::size_t bytes) const;                           // of a reduce by two
  // In parts of Balance::kParts, before these are shifted: how much of a block the rank that gets it fetches, where its
  // owner brings the rest; of two ranks' sums, what the root makes, or the first rank. both: of them copy that block.
  int copied_parts(Collective collective, bool both) const;
  kernels::Stores stores_beside_copies(const Call& call) const;  // of a rank's own block

 private:
  struct Limit {  // a threshold of the tuning; without a name there is none
    std::string_view name{};
    std::uint64_t bytes = 0;
  };
  bool copies_sums(const Call& call) const;
  bool pages_are_cheap() const;
  bool copies_by_root(const CollectiveRow& row) const;  // of two ranks, a block from or to it
  Limit least_copied(const Call& call) const;
  bool goes_to_ring(const Call& call) const;
  std::size_t most_place_bytes(int source) const;
  std::size_t chunk_bytes() const;
  bool pours_to_root(Collective collective) const;
  Limit whole_limit(Collective collective) const;  // of sums that everybody makes
  bool shares_sums() const;
  std::size_t most_at_once() const;
  std::size_t crowds_chunk(std::size_t bytes) const;
  std::size_t lopsided_bytes(std::size_t bytes, std::size_t most) const;
  RingPlan cut(std::size_t count, std::size_t element, std::size_t pieces, std::size_t most_bytes,
               int source = RingPlan::kEverybody) const;
  RingPlan plan_sum(const RingCall& call) const;
  bool handed(std::size_t block, std::size_t pieces) const;
  std::size_t ahead_bytes(const RingPlan& plan, std::size_t rings_used) const;
  std::size_t reused_bytes(const RingPlan& plan, std::size_t place_bytes) const;

  NodeFacts facts_;
  Tuning tuning_;
};

}  // namespace rondo::comm
