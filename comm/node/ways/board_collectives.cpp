// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/board_collectives.hpp"

#include <algorithm>

namespace rondo::comm {

BoardCollectives::BoardCollectives(Team& team, const Config& config, Windows& windows)
    : team_(team),
      chooser_(facts_of(team), config.tuning),
      board_(team, config),
      direct_(team, chooser_, board_, windows),
      flow_(team, board_, chooser_),
      claims_(team, board_),
      ring_stores_(team.segment(), board_.index(), !team.spare_cores()),
      rank_(board_.index()),
      size_(board_.size()),
      contributions_(as_size(size_)),
      sources_(as_size(size_)),
      lead_(chooser_.lead(0, false)),
      may_pull_(config.algorithm.empty()) {}

bool BoardCollectives::takes(const Call& call) const {
  return spans_team() && fits(size_) && !row_of(call.collective).is_message();
}

bool BoardCollectives::run_direct(const Call& call, std::chrono::milliseconds timeout) {
  board_.begin(timeout);
  return direct_.run(call);
}

void BoardCollectives::run(const Call& call, std::span<const Range> blocks) {
  blocks_ = blocks;
  recv_blocks_ = {};
  load(call);
  switch (call.collective) {
    case Collective::all_reduce:
      return reduce(true);
    case Collective::reduce:
      return reduce(false);
    case Collective::reduce_scatter:
      return reduce_scatter();
    case Collective::broadcast:
      return broadcast();
    case Collective::all_gather:
    case Collective::all_gather_v:
      return gather_blocks(true);
    case Collective::gather:
    case Collective::gather_v:
      return gather_blocks(false);
    case Collective::scatter:
    case Collective::scatter_v:
      return scatter_blocks();
    case Collective::all_to_all:
      return exchange(0);
    case Collective::barrier:
    case Collective::all_to_all_v:  // BoardCounted's
    case Collective::send:          // links'
    case Collective::recv:
      return board_.meet();
  }
}

void BoardCollectives::load(const Call& call) {
  call_ = call;
  element_ = size_of(call.dtype);
  went_direct_ = false;
  scales_ = row_of(call.collective).reduces && call.op == ReduceOp::premultiplied_sum;
  lay_out(counts_of(call_), offsets_);
  choose_stores();
}

void BoardCollectives::choose_stores() {
  const RingStores stores = chooser_.stores({.call = call_, .larger = larger_bytes()});
  outgrows_caches_ = stores.from_memory;
  result_stores_ = stores.result;
}

std::size_t BoardCollectives::larger_bytes() const {
  if (blocks_.empty()) return larger_count(call_, size_) * element_;
  std::size_t count = 0;
  for (const Range& block : blocks_) count += block.count;
  return count * element_;
}

RingPlan BoardCollectives::plan(std::size_t skipped, bool even) const {
  const std::size_t longest = row_of(call_.collective).has_own_counts() ? longest_ : longest_block();
  return chooser_.plan({.call = call_, .larger = larger_bytes(), .longest = longest - skipped, .even = even});
}

// Into this rank's place, so many elements in; the operator's first touch on the way.
void BoardCollectives::publish(Place place, const std::byte* from, std::size_t count, std::size_t first,
                               kernels::Stores stores) {
  if (count == 0 || size_ == 1) return;
  std::byte* into = at(rank_, place, first);
  const std::size_t bytes = count * element_;
  if (scales_) {
    kernels::find_multiply(call_.dtype)(into, from, count, call_.op.factor());
  } else if (outgrows_caches_ && stores == kernels::Stores::plain) {
    kernels::fetch(into, from, bytes);
  } else {
    kernels::copy(into, from, bytes, stores);
  }
  ring_stores_.wrote();
}

// The same, and into a buffer of this rank: what it keeps of it itself.
void BoardCollectives::publish_and_keep(Place place, const std::byte* from, std::size_t count, std::byte* into) {
  if (count == 0) return;
  if (into == from || size_ == 1) {
    publish(place, from, count);
    return copy_result(into, from, count);
  }
  const std::size_t bytes = count * element_;
  kernels::copy_twice({at(rank_, place, 0), stores(bytes)}, {into, result_stores_}, from, bytes);
  ring_stores_.wrote();
}

void BoardCollectives::broadcast() {
  const bool roots = rank_ == call_.root;
  flow_.run(
      plan(),
      [&](Range chunk, Place place) {
        publish(place, send(chunk.offset), chunk.count);
        copy_result(recv(chunk.offset), send(chunk.offset), chunk.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        if (roots) return;
        ring_stores_.read();
        copy_result(recv(chunk.offset), at(call_.root, place, 0), chunk.count);
      });
}

void BoardCollectives::gather_blocks(bool everywhere) {
  const bool keeps = everywhere || rank_ == call_.root;
  flow_.run(
      plan(0, size_ == 2 && are_even(block(0).count, block(1).count)),
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(block(rank_), chunk);
        if (everywhere) return publish_and_keep(place, send(chunk.offset), mine.count, recv(mine.offset));
        if (keeps) return copy_result(recv(mine.offset), send(chunk.offset), mine.count);
        publish(place, send(chunk.offset), mine.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        ring_stores_.read();
        for (int step = 1; step < size_; ++step) {
          const int r = (rank_ + step) % size_;
          const Range theirs = kernels::clip(block(r), chunk);
          copy_result(recv(theirs.offset), at(r, place, 0), theirs.count);
        }
      });
}

void BoardCollectives::scatter_blocks() {
  const bool roots = rank_ == call_.root;
  const Flow::Plan chunks = plan();
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        for (int r = 0; r < size_; ++r) {
          const Range theirs = kernels::clip(block(r), chunk);
          if (r != rank_) publish_for(r, place, send(theirs.offset), theirs.count, as_size(r) * chunks.step);
        }
        const Range mine = kernels::clip(block(rank_), chunk);
        copy_result(recv(chunk.offset), send(mine.offset), mine.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(block(rank_), chunk);
        if (roots) return;
        ring_stores_.read();
        copy_result(recv(chunk.offset), at(call_.root, place, as_size(rank_) * chunks.step), mine.count);
      });
}

// A place holds a piece for every rank, `step` elements from the last.
void BoardCollectives::publish_pieces(Range chunk, Place place, std::size_t step) {
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = kernels::clip(block(r), chunk);
    publish_for(r, place, send(theirs.offset), theirs.count, piece_of(r, step));
  }
}

// This rank's own comes when others know what it has published.
void BoardCollectives::take_pieces(Range chunk, Place place, std::size_t step) {
  const Range mine = kernels::clip(block(rank_), chunk);
  copy_result(recv(kernels::clip(recv_block(rank_), chunk).offset), send(mine.offset), mine.count);
  ring_stores_.read();
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = kernels::clip(recv_block(r), chunk);
    copy_result(recv(theirs.offset), at(r, place, piece_of(rank_, step)), theirs.count);
  }
}

// All but the first elements of every block.
void BoardCollectives::exchange(std::size_t skipped) {
  const Flow::Plan chunks = plan(skipped, size_ == 2 && are_even(block(1 - rank_).count, recv_block(1 - rank_).count));
  const auto after = [&](Range chunk) { return Range{chunk.offset + skipped, chunk.count}; };
  flow_.run(
      chunks, [&](Range chunk, Place place) { publish_pieces(after(chunk), place, chunks.step); }, Flow::kNothing,
      [&](Range chunk, Place place) { take_pieces(after(chunk), place, chunks.step); });
}

kernels::Range BoardCollectives::block(int of) const {
  if (!blocks_.empty()) return blocks_[as_size(of)];
  if (offsets_.empty()) return {as_size(of) * call_.count, call_.count};
  return {offsets_[as_size(of)], counts_of(call_)[as_size(of)]};
}

kernels::Range BoardCollectives::recv_block(int of) const {
  return recv_blocks_.empty() ? block(of) : recv_blocks_[as_size(of)];
}

std::size_t BoardCollectives::longest_block() const {
  std::size_t longest = 0;
  for (int r = 0; r < size_; ++r) longest = std::max(longest, block(r).count);
  return longest;
}

void BoardCollectives::copy_result(std::byte* into, const std::byte* from, std::size_t count) const {
  if (into != from && count != 0) kernels::copy(into, from, count * element_, result_stores_);
}

}  // namespace rondo::comm
