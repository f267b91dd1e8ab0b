// SPDX-License-Identifier: Apache-2.0
// The reductions on the board.
#include <algorithm>
#include <array>

#include "comm/node/policy/thresholds.hpp"
#include "comm/node/ways/board_collectives.hpp"

namespace rondo::comm {

void BoardCollectives::reduce(const Frame& frame, bool everywhere) {
  switch (chooser_.sum_of(frame.call)) {
    case RingSum::whole:
      return reduce_whole(frame, everywhere);
    case RingSum::together:
      return reduce_together(frame);
    case RingSum::parts:
      return reduce_in_parts(frame, everywhere);
  }
}

// Everybody who keeps the result reads everything of everybody.
void BoardCollectives::reduce_whole(const Frame& frame, bool everywhere) {
  flow_.run(
      plan(frame, frame.longest_block()),
      [&](Range chunk, Place place) {
        if (everywhere || !frame.at_root()) publish(frame, place, frame.send(chunk.offset), chunk.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        gather_contributions(frame, place, 0, frame.send(chunk.offset));
        fold(frame, std::array{frame.recv(chunk.offset)}, chunk.count, frame.stores.result);
      });
}

// Where ranks take turns on cores: everybody publishes everything, and once all have come, whoever is running folds
// what nobody has begun, into its own place, where nobody looks for what it held of that before. The others take it
// from there, most of them without having waited a second time.
void BoardCollectives::reduce_together(const Frame& frame) {
  const std::size_t step = chooser_.piece_of_sum(frame.call.count, frame.element);
  const auto range_of = [&](std::size_t piece) {
    return Range{piece * step, std::min(step, frame.call.count - piece * step)};
  };
  board_.settle();
  const Place place = flow_.reserve(frame.call.count * frame.element);
  publish(frame, place, frame.send(0), frame.call.count);
  board_.arrive();
  board_.give_way();
  board_.await_all();
  claims_.share((frame.call.count + step - 1) / step, false,
                [&](std::size_t piece) {
                  const Range mine = range_of(piece);
                  gather_contributions(frame, place, mine.offset, frame.send(mine.offset));
                  fold(frame, std::array{at(frame, rank_, place, mine.offset), frame.recv(mine.offset)}, mine.count,
                       ring_stores_.stores(mine.count * frame.element), frame.stores.result);
                },
                [&](std::size_t piece, int index) {
                  const Range theirs = range_of(piece);
                  copy_result(frame, frame.recv(theirs.offset), at(frame, index, place, theirs.offset), theirs.count);
                });
}

// Each rank folds its part of a chunk, into its own place, where nobody looks for what it held of that part before; or
// where it lies in the other's, who then has it where it has to be.
void BoardCollectives::reduce_in_parts(const Frame& frame, bool everywhere) {
  const bool keeps = everywhere || frame.at_root();
  const Flow::Plan chunks = plan(frame, frame.longest_block());
  const bool hands_over = chooser_.hands_over(chunks);
  const auto home = [&](int folder) { return hands_over ? 1 - folder : folder; };
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        const Range mine = kernels::part(chunk, size_, rank_);
        const std::size_t before = mine.offset - chunk.offset, end = before + mine.count;
        publish(frame, place, frame.send(chunk.offset), before);
        publish(frame, place, frame.send(chunk.offset + end), chunk.count - end, end);
      },
      [&](Range chunk, Place place) {
        const Range mine = kernels::part(chunk, size_, rank_);
        const std::size_t first = mine.offset - chunk.offset;
        std::byte* shown = at(frame, home(rank_), place, first);
        gather_contributions(frame, place, first, frame.send(mine.offset));
        const kernels::Stores as_shown = stores(mine.count * frame.element);
        if (!keeps) return fold(frame, std::array{shown}, mine.count, as_shown);
        std::byte* kept = frame.recv(mine.offset);
        if (!everywhere) return fold(frame, std::array{kept}, mine.count, frame.stores.result);
        fold(frame, std::array{shown, kept}, mine.count, as_shown, frame.stores.result);
      },
      [&](Range chunk, Place place) {
        for (int turn = 1; turn < size_; ++turn) {
          const int r = (rank_ + turn) % size_;
          const Range part = kernels::part(chunk, size_, r);
          copy_result(frame, frame.recv(part.offset), at(frame, home(r), place, part.offset - chunk.offset),
                      part.count);
        }
      });
}

// A place holds a piece of everybody's block; each rank needs those of its own block.
void BoardCollectives::reduce_scatter(const Frame& frame) {
  const Flow::Plan chunks = plan(frame, frame.longest_block());
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        for (int turn = 1; turn < size_; ++turn) {
          const int r = (rank_ + turn) % size_;
          const Range theirs = kernels::clip(frame.block(r), chunk);
          publish_for(frame, r, place, frame.send(theirs.offset), theirs.count, piece_of(r, chunks.step));
        }
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(frame.block(rank_), chunk);
        gather_contributions(frame, place, piece_of(rank_, chunks.step), frame.send(mine.offset));
        fold(frame, std::array{frame.recv(chunk.offset)}, mine.count, frame.stores.result);
      });
}

// What every rank has at that element of its place; its own input of a rank.
void BoardCollectives::gather_contributions(const CallFrame& frame, Place place, std::size_t first,
                                            const std::byte* own) {
  ring_stores_.read();
  for (int r = 0; r < size_; ++r) contributions_[as_size(r)] = at(frame, r, place, first);
  contributions_[as_size(rank_)] = own;
}

void BoardCollectives::fold(const CallFrame& frame, std::span<std::byte* const> into, std::size_t count,
                            kernels::Stores first, kernels::Stores second) {
  if (count == 0) return;
  std::array<void*, 2> out{};
  std::copy(into.begin(), into.end(), out.begin());
  const kernels::FoldJob job{.out = out.data(),
                             .outputs = static_cast<int>(into.size()),
                             .in = contributions_.data(),
                             .inputs = size_,
                             .count = count,
                             .divisor = frame.call.op == ReduceOp::average ? size_ : 1.0,
                             .stores = second,
                             .first_stores = first};
  if (!frame.scales) return kernels::fold(frame.call.dtype, frame.call.op, job);
  fold_scaled(frame, job, std::span(out).first(into.size()));
}

// The others have multiplied what they published; this rank's own is, a strip at a time that a cache of its core holds.
void BoardCollectives::fold_scaled(const CallFrame& frame, kernels::FoldJob job, std::span<void*> out) {
  using threshold::kStepFolded;
  strip_.resize(kStepFolded);
  const auto* const own = static_cast<const std::byte*>(contributions_[as_size(rank_)]);
  for (const Range now : kernels::Rounds(job.count, kStepFolded / frame.element)) {
    kernels::find_multiply(frame.call.dtype)(strip_.data(), own + now.offset * frame.element, now.count,
                                             frame.call.op.factor());
    job.count = now.count;
    contributions_[as_size(rank_)] = strip_.data();
    kernels::fold(frame.call.dtype, frame.call.op, job);
    for (const void*& in : contributions_) in = static_cast<const std::byte*>(in) + now.count * frame.element;
    for (void*& to : out) to = static_cast<std::byte*>(to) + now.count * frame.element;
  }
}

}  // namespace rondo::comm
