// SPDX-License-Identifier: Apache-2.0
// Collectives whose ranks bring few bytes each: these lie in the arrivals themselves, or in a ring, so ranks meet once.
// Everybody reads what it needs from everybody; sums are in rank order. Ranks are called by their index in the segment,
// as by Board.
#pragma once
#include <chrono>
#include <string_view>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/call/blocks.hpp"
#include "comm/node/meeting/board.hpp"
#include "comm/node/memory/store_choice.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/rings/flow.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class ShortCalls {
 public:
  // All must outlive it.
  ShortCalls(const Chooser& chooser, Board& board, Flow& flow, StoreChoice& stores);

  static constexpr std::string_view kName = "short_call";

  // What all calls of one shape have in common; offsets and lengths are bytes.
  struct Plan {
    std::size_t block = 0;               // that a rank gets from each rank that it reads; where they differ, its own
    std::size_t part = 0;                // where this rank's block lies in the buffer of who brings it
    std::vector<kernels::Range> blocks;  // gathered ones that differ, by index
    // What this rank brings: the first so many bytes, and the last so many; between them lies its own part, left out.
    std::size_t first = 0, own = 0, last = 0;
    std::size_t brought = 0;               // by whoever brings most
    std::size_t element = 1;               // of the dtype
    int source = -1;                       // the only rank that brings anything; -1: all do
    int awaits = Board::kEverybody;        // whose coming it needs: a rank's, or everybody's, or nobody's
    int read_by = Board::kEverybody;       // who awaits this rank's: see Board::arrive
    bool keeps = false;                    // this rank gets a result
    bool gathers = false;                  // of blocks from all
    bool leaves_early = false;             // of two ranks with a core each: before the other has come
    bool yields = false;                   // once: see Board::give_way
    int holds_back = 0;                    // before it looks for others, who come at the same time: see Board
    int polls = 0;                         // for the rank that it awaits: see Board::await
    bool in_ring = false;                  // what is brought lies there
    bool weighs = false;                   // how it is written makes a difference
    double divisor = 1;                    // of the average
    kernels::FoldFunction fold = nullptr;  // null: blocks are copied
    kernels::Scale multiply = nullptr;     // not null: the operator's first touch on what is brought

    kernels::Range block_from(int index) const {  // in what this rank gets
      return blocks.empty() ? kernels::Range{as_size(index) * block, block} : blocks[as_size(index)];
    }
  };
  Plan plan(const Call& call) const;

  // What this rank brings; then the call may look after itself; then what the others brought.
  void publish(const Plan& plan, const Call& call, std::chrono::milliseconds timeout);
  // read_ticks() of when it was done; of a few bytes, when they were seen to have come.
  [[gnu::always_inline]] std::uint64_t collect(const Plan& plan, const Call& call) {
    if (plan.yields) board_.give_way();
    take(plan, call);
    const std::uint64_t saw = board_.saw();
    return saw != 0 && plan.block <= kFew ? saw : read_ticks();
  }

 private:
  static constexpr std::size_t kFew = 256;  // bytes: taken before the clock could be read

  void choose(const Call& call, Plan& plan) const;
  void lay_out(std::span<const std::size_t> counts, bool has_parts, Plan& plan) const;
  // Of what a rank brings.
  std::byte* place(int index, Arrival& arrival, const Plan& plan) const {
    if (plan.brought <= Arrival::kPayload) return arrival.payload.data();
    return plan.in_ring ? flow_.at(index, in_ring_) : board_.body(index, body_);
  }
  // For this rank, of what another has brought.
  const std::byte* block_of(int index, const Plan& plan) const {
    return place(index, board_.arrived(index), plan) + plan.part - (index < index_ ? plan.own : 0);
  }
  void take_place(const Plan& plan);
  void bring(const Plan& plan, const Call& call);
  [[gnu::always_inline]] void take(const Plan& plan, const Call& call);
  void fold(const Plan& plan, const Call& call);
  void copy_from(int index, const Plan& plan, const Call& call, kernels::Range block);

  void write(const Plan& plan, std::byte* into, const std::byte* from, std::size_t bytes, double factor) const;

  const Chooser& chooser_;
  Board& board_;
  Flow& flow_;
  StoreChoice& stores_;
  int index_, size_;
  std::uint64_t body_ = 0;  // of the latest call that brought more than fits beside a flag, behind it
  Flow::Place in_ring_;     // of the latest that brought it there
  kernels::Copy copy_ = kernels::find_copy();
  std::vector<const void*> contributions_;  // by rank
};

// What this rank gets from itself goes before it waits. Who looks at once takes the other's line away just when that
// comes to write there, and both wait longer.
inline void ShortCalls::take(const Plan& plan, const Call& call) {
  if (plan.gathers) copy_from(index_, plan, call, plan.block_from(index_));
  board_.hold_back(plan.holds_back);
  if (plan.awaits == Board::kEverybody) board_.await_all();
  if (plan.awaits >= 0) board_.await(plan.awaits, plan.polls);
  if (plan.leaves_early) board_.fetch_for_settling(1 - index_);
  if (!plan.keeps) return;
  if (plan.weighs && plan.awaits != Board::kNobody) stores_.read();
  if (plan.fold != nullptr) return fold(plan, call);
  if (plan.source >= 0) return copy_from(plan.source, plan, call, {0, plan.block});
  for (int step = 1; step < size_; ++step) {
    const int index = index_ + step < size_ ? index_ + step : index_ + step - size_;
    copy_from(index, plan, call, plan.block_from(index));
  }
}

}  // namespace rondo::comm
