// SPDX-License-Identifier: Apache-2.0
// The collectives among ranks that share memory, over the board: every rank publishes what others need, chunk by chunk,
// and reads from all (see Flow). Reductions add in rank order, so the bits depend on values and ranks alone.
// Roots, blocks and counts are those of the ranks that share the segment, by their index there (see Board).
#pragma once
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/call/blocks.hpp"
#include "comm/node/meeting/board.hpp"
#include "comm/node/meeting/claims.hpp"
#include "comm/node/memory/store_choice.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/rings/flow.hpp"
#include "comm/node/ways/call_frame.hpp"
#include "comm/node/ways/zero_copy.hpp"
#include "comm/setup/config.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class BoardCollectives {
  using Range = kernels::Range;

 public:
  BoardCollectives(Team& team, const Config& config, Windows& windows);

  bool spans_team() const { return size_ == team_.size(); }  // all its ranks share the segment
  // They agree on the answer. Messages are not collectives.
  bool takes(const Call& call) const;
  const Chooser& chooser() const { return chooser_; }
  Board& board() { return board_; }
  Flow& flow() { return flow_; }
  StoreChoice& ring_stores() { return ring_stores_; }
  // An all_to_all_v, of which each rank knows only its own blocks: where they lie.
  struct Counted {
    std::vector<Range> sent, received;   // by index
    std::size_t bytes = 0, longest = 0;  // of all that is sent; elements of the longest block of those
  };
  static Counted plan_counted(const Call& call);
  // True: all but the beginning went straight between the ranks' buffers.
  bool run_counted(const Counted& plan, const Call& call, std::chrono::milliseconds timeout);
  // The parts of a larger collective, the one noted last: begin(), then any number of them. `blocks`: where each rank's
  // block of the larger buffer lies, for collectives that have such blocks; by default one after the other.
  bool fits(int ranks) const { return chooser_.fits_rings(ranks); }  // of a node
  void begin(std::chrono::milliseconds timeout) { board_.begin(timeout); }
  void run(const Call& call, std::span<const kernels::Range> blocks = {});
  // See ZeroCopy.
  bool may_go_direct(const Call& call) { return takes(call) && direct_.may_take(call); }
  bool run_direct(const Call& call, std::chrono::milliseconds timeout);
  void went_another_way() { direct_.went_another_way(); }  // the call that run_direct() had said no to
  std::string_view direct_name() const { return direct_.name(); }
  Reason why_direct() const { return direct_.why(); }
  std::string_view why_not_direct() const { return direct_.why_not(); }

 private:
  using Place = Flow::Place;

  struct Places {  // behind this call's arrivals, and in the rings
    std::uint64_t turn;
    Place ring;
  };

  struct Frame : CallFrame {
    RingStores stores{};
  };
  struct Heard {                                      // of the others' counted blocks
    std::size_t longest = 0;                          // elements, of any two ranks
    bool within_reach = false, in_processes = false;  // all buffers; ordinary memory of processes
  };

  RingStores stores_of(const CallFrame& frame) const;
  // longest: elements, of what goes through the rings.
  RingPlan plan(const CallFrame& frame, std::size_t longest, bool even = true) const;

  void reduce(const Frame& frame, bool everywhere);
  void reduce_whole(const Frame& frame, bool everywhere);
  void reduce_in_parts(const Frame& frame, bool everywhere);
  void reduce_together(const Frame& frame);
  void reduce_scatter(const Frame& frame);
  void broadcast(const Frame& frame);
  void exchange(const Frame& frame, std::size_t longest, std::size_t skipped);
  void gather_blocks(const Frame& frame, bool everywhere);
  void scatter_blocks(const Frame& frame);

  bool brings_in_ring(const CallFrame& frame, std::size_t step) const;
  Heard exchange_lead(const Frame& frame, const Counted& plan, std::size_t step);
  void bring_lead(const CallFrame& frame, std::byte* into, bool in_ring, std::size_t step);
  void take_lead(const Frame& frame, int from, std::size_t step, const Places& places, const std::byte* beside_flag,
                 Heard& heard);
  void compare_counts(const CallFrame& frame, int peer, std::size_t sent, std::size_t expected) const;
  void prepare_lead(std::size_t longest_bytes, bool straight);
  void pull_blocks(const Frame& frame, std::size_t skipped, Straight way);

  void publish(const Frame& frame, Place place, const std::byte* from, std::size_t count, std::size_t first = 0) {
    publish(frame, place, from, count, first, stores(count * frame.element));
  }
  void publish_for(const Frame& frame, int reader, Place place, const std::byte* from, std::size_t count,
                   std::size_t first) {
    publish(frame, place, from, count, first, stores(count * frame.element, reader));
  }
  void publish(const Frame& frame, Place place, const std::byte* from, std::size_t count, std::size_t first,
               kernels::Stores stores);
  // Lines that are handed over are in this rank's caches.
  template <class... Reader>
  kernels::Stores stores(std::size_t bytes, Reader... reader) const {
    return flow_.hands_over() ? kernels::Stores::plain : ring_stores_.stores(bytes, reader...);
  }
  void publish_and_keep(const Frame& frame, Place place, const std::byte* from, std::size_t count, std::byte* into);
  void publish_pieces(const Frame& frame, Range chunk, Place place, std::size_t step);
  void take_pieces(const Frame& frame, Range chunk, Place place, std::size_t step);
  // Where a reader's piece lies in a place. Of two ranks it is all that lies there: both use the same lines.
  std::size_t piece_of(int reader, std::size_t step) const { return size_ == 2 ? 0 : as_size(reader) * step; }

  void gather_contributions(const CallFrame& frame, Place place, std::size_t first, const std::byte* own);
  void fold(const CallFrame& frame, std::span<std::byte* const> into, std::size_t count, kernels::Stores stores) {
    fold(frame, into, count, stores, stores);  // contributions_
  }
  void fold(const CallFrame& frame, std::span<std::byte* const> into, std::size_t count, kernels::Stores first,
            kernels::Stores second);
  void fold_scaled(const CallFrame& frame, kernels::FoldJob job, std::span<void*> out);

  void copy_result(const Frame& frame, std::byte* into, const std::byte* from, std::size_t count) const;
  std::byte* at(const CallFrame& frame, int index, Place place, std::size_t element) const {
    return flow_.at(index, place) + element * frame.element;
  }

  Team& team_;
  const Chooser chooser_;
  Board board_;
  ZeroCopy direct_;
  Flow flow_;
  Claims claims_;
  StoreChoice ring_stores_;
  int rank_, size_;                // index and number in the segment
  Lead lead_;                      // of the next all_to_all_v's blocks,
  std::size_t lead_made_for_ = 0;  // if the longest takes so many bytes
  bool lead_straight_ = false;     // and goes straight between buffers
  const bool may_pull_;
  // Room for a call.
  std::vector<const void*> contributions_;  // by rank
  std::vector<std::byte> strip_;            // of this rank's, multiplied
  std::vector<std::size_t> offsets_;        // of blocks of variable length
  std::vector<const std::byte*> sources_;   // by rank: the block for this rank, where that is within reach
};

}  // namespace rondo::comm
