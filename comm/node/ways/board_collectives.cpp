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
      ring_stores_(team.segment(), board_.index(), team.crowded()),
      rank_(board_.index()),
      size_(board_.size()),
      lead_(chooser_.lead(0, false)),
      may_pull_(config.algorithm.empty()),
      contributions_(as_size(size_)),
      sources_(as_size(size_)) {}

bool BoardCollectives::takes(const Call& call) const {
  return spans_team() && fits(size_) && !row_of(call.collective).is_message();
}

bool BoardCollectives::run_direct(const Call& call, std::chrono::milliseconds timeout) {
  board_.begin(timeout);
  return direct_.run(call);
}

void BoardCollectives::run(const Call& call, std::span<const Range> blocks) {
  lay_out(counts_of(call), offsets_);
  const CallFrame at_first{.call = call, .index = rank_, .ranks = size_, .offsets = offsets_, .blocks = blocks};
  const Frame frame{at_first, stores_of(at_first)};
  switch (call.collective) {
    case Collective::all_reduce:
      return reduce(frame, true);
    case Collective::reduce:
      return reduce(frame, false);
    case Collective::reduce_scatter:
      return reduce_scatter(frame);
    case Collective::broadcast:
      return broadcast(frame);
    case Collective::all_gather:
    case Collective::all_gather_v:
      return gather_blocks(frame, true);
    case Collective::gather:
    case Collective::gather_v:
      return gather_blocks(frame, false);
    case Collective::scatter:
    case Collective::scatter_v:
      return scatter_blocks(frame);
    case Collective::all_to_all:
      return exchange(frame, frame.longest_block(), 0);
    case Collective::barrier:
    case Collective::all_to_all_v:  // BoardCounted's
    case Collective::send:          // links'
    case Collective::recv:
      return board_.meet();
  }
}

RingStores BoardCollectives::stores_of(const CallFrame& frame) const {
  return chooser_.stores({.call = frame.call, .larger = frame.larger_bytes()});
}

RingPlan BoardCollectives::plan(const CallFrame& frame, std::size_t longest, bool even) const {
  return chooser_.plan({.call = frame.call, .larger = frame.larger_bytes(), .longest = longest, .even = even});
}

// Into this rank's place, so many elements in; the operator's first touch on the way.
void BoardCollectives::publish(const Frame& frame, Place place, const std::byte* from, std::size_t count,
                               std::size_t first, kernels::Stores stores) {
  if (count == 0 || size_ == 1) return;
  std::byte* into = at(frame, rank_, place, first);
  const std::size_t bytes = count * frame.element;
  if (frame.scales) {
    kernels::find_multiply(frame.call.dtype)(into, from, count, frame.call.op.factor());
  } else if (frame.stores.from_memory && stores == kernels::Stores::plain) {
    kernels::fetch(into, from, bytes);
  } else {
    kernels::copy(into, from, bytes, stores);
  }
  ring_stores_.wrote();
}

// The same, and into a buffer of this rank: what it keeps of it itself.
void BoardCollectives::publish_and_keep(const Frame& frame, Place place, const std::byte* from, std::size_t count,
                                        std::byte* into) {
  if (count == 0) return;
  if (into == from || size_ == 1) {
    publish(frame, place, from, count);
    return copy_result(frame, into, from, count);
  }
  const std::size_t bytes = count * frame.element;
  kernels::copy_twice({at(frame, rank_, place, 0), stores(bytes)}, {into, frame.stores.result}, from, bytes);
  ring_stores_.wrote();
}

void BoardCollectives::broadcast(const Frame& frame) {
  const bool roots = frame.at_root();
  flow_.run(
      plan(frame, frame.longest_block()),
      [&](Range chunk, Place place) {
        publish(frame, place, frame.send(chunk.offset), chunk.count);
        copy_result(frame, frame.recv(chunk.offset), frame.send(chunk.offset), chunk.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        if (roots) return;
        ring_stores_.read();
        copy_result(frame, frame.recv(chunk.offset), at(frame, frame.call.root, place, 0), chunk.count);
      });
}

void BoardCollectives::gather_blocks(const Frame& frame, bool everywhere) {
  const bool keeps = everywhere || frame.at_root();
  flow_.run(
      plan(frame, frame.longest_block(), size_ == 2 && are_even(frame.block(0).count, frame.block(1).count)),
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(frame.block(rank_), chunk);
        if (everywhere)
          return publish_and_keep(frame, place, frame.send(chunk.offset), mine.count, frame.recv(mine.offset));
        if (keeps) return copy_result(frame, frame.recv(mine.offset), frame.send(chunk.offset), mine.count);
        publish(frame, place, frame.send(chunk.offset), mine.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        ring_stores_.read();
        for (int step = 1; step < size_; ++step) {
          const int r = (rank_ + step) % size_;
          const Range theirs = kernels::clip(frame.block(r), chunk);
          copy_result(frame, frame.recv(theirs.offset), at(frame, r, place, 0), theirs.count);
        }
      });
}

void BoardCollectives::scatter_blocks(const Frame& frame) {
  const bool roots = frame.at_root();
  const Flow::Plan chunks = plan(frame, frame.longest_block());
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        for (int r = 0; r < size_; ++r) {
          const Range theirs = kernels::clip(frame.block(r), chunk);
          if (r != rank_)
            publish_for(frame, r, place, frame.send(theirs.offset), theirs.count, as_size(r) * chunks.step);
        }
        const Range mine = kernels::clip(frame.block(rank_), chunk);
        copy_result(frame, frame.recv(chunk.offset), frame.send(mine.offset), mine.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(frame.block(rank_), chunk);
        if (roots) return;
        ring_stores_.read();
        copy_result(frame, frame.recv(chunk.offset), at(frame, frame.call.root, place, as_size(rank_) * chunks.step),
                    mine.count);
      });
}

// A place holds a piece for every rank, `step` elements from the last.
void BoardCollectives::publish_pieces(const Frame& frame, Range chunk, Place place, std::size_t step) {
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = kernels::clip(frame.block(r), chunk);
    publish_for(frame, r, place, frame.send(theirs.offset), theirs.count, piece_of(r, step));
  }
}

// This rank's own comes when others know what it has published.
void BoardCollectives::take_pieces(const Frame& frame, Range chunk, Place place, std::size_t step) {
  const Range mine = kernels::clip(frame.block(rank_), chunk);
  copy_result(frame, frame.recv(kernels::clip(frame.recv_block(rank_), chunk).offset), frame.send(mine.offset),
              mine.count);
  ring_stores_.read();
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = kernels::clip(frame.recv_block(r), chunk);
    copy_result(frame, frame.recv(theirs.offset), at(frame, r, place, piece_of(rank_, step)), theirs.count);
  }
}

// All but the first elements of every block.
void BoardCollectives::exchange(const Frame& frame, std::size_t longest, std::size_t skipped) {
  const Flow::Plan chunks =
      plan(frame, longest - skipped,
           size_ == 2 && are_even(frame.block(1 - rank_).count, frame.recv_block(1 - rank_).count));
  const auto after = [&](Range chunk) { return Range{chunk.offset + skipped, chunk.count}; };
  flow_.run(
      chunks, [&](Range chunk, Place place) { publish_pieces(frame, after(chunk), place, chunks.step); },
      Flow::kNothing, [&](Range chunk, Place place) { take_pieces(frame, after(chunk), place, chunks.step); });
}

void BoardCollectives::copy_result(const Frame& frame, std::byte* into, const std::byte* from,
                                   std::size_t count) const {
  if (into != from && count != 0) kernels::copy(into, from, count * frame.element, frame.stores.result);
}

}  // namespace rondo::comm
