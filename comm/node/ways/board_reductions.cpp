// SPDX-License-Identifier: Apache-2.0
// The reductions on the board.
#include <algorithm>
#include <array>

#include "comm/node/ways/board_collectives.hpp"

namespace rondo::comm {

void BoardCollectives::reduce(bool everywhere) {
  switch (chooser_.sum_of(call_)) {
    case RingSum::whole:
      return reduce_whole(everywhere);
    case RingSum::together:
      return reduce_together();
    case RingSum::parts:
      return reduce_in_parts(everywhere);
  }
}

// Everybody who keeps the result reads everything of everybody.
void BoardCollectives::reduce_whole(bool everywhere) {
  flow_.run(
      plan(),
      [&](Range chunk, Place place) {
        if (everywhere || rank_ != call_.root) publish(place, send(chunk.offset), chunk.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        gather_contributions(place, 0, send(chunk.offset));
        fold(std::array{recv(chunk.offset)}, chunk.count, result_stores_);
      });
}

// Where ranks take turns on cores: everybody publishes everything, and once all have come, whoever is running folds
// what nobody has begun, into its own place, where nobody looks for what it held of that before. The others take it
// from there, most of them without having waited a second time.
void BoardCollectives::reduce_together() {
  const std::size_t step = chooser_.piece_of_sum(call_.count, element_);
  const auto range_of = [&](std::size_t piece) {
    return Range{piece * step, std::min(step, call_.count - piece * step)};
  };
  board_.settle();
  const Place place = flow_.reserve(call_.count * element_);
  publish(place, send(0), call_.count);
  board_.arrive();
  board_.give_way();
  board_.await_all();
  claims_.share((call_.count + step - 1) / step, false,
                [&](std::size_t piece) {
                  const Range mine = range_of(piece);
                  gather_contributions(place, mine.offset, send(mine.offset));
                  fold(std::array{at(rank_, place, mine.offset), recv(mine.offset)}, mine.count,
                       ring_stores_.stores(mine.count * element_), result_stores_);
                },
                [&](std::size_t piece, int index) {
                  const Range theirs = range_of(piece);
                  copy_result(recv(theirs.offset), at(index, place, theirs.offset), theirs.count);
                });
}

// Each rank folds its part of a chunk, into its own place, where nobody looks for what it held of that part before; or
// where it lies in the other's, who then has it where it has to be.
void BoardCollectives::reduce_in_parts(bool everywhere) {
  const bool keeps = everywhere || rank_ == call_.root;
  const Flow::Plan chunks = plan();
  const bool hands_over = chooser_.hands_over(chunks);
  const auto home = [&](int folder) { return hands_over ? 1 - folder : folder; };
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        const Range mine = kernels::part(chunk, size_, rank_);
        const std::size_t before = mine.offset - chunk.offset, end = before + mine.count;
        publish(place, send(chunk.offset), before);
        publish(place, send(chunk.offset + end), chunk.count - end, end);
      },
      [&](Range chunk, Place place) {
        const Range mine = kernels::part(chunk, size_, rank_);
        const std::size_t first = mine.offset - chunk.offset;
        std::byte* shown = at(home(rank_), place, first);
        gather_contributions(place, first, send(mine.offset));
        const kernels::Stores as_shown = stores(mine.count * element_);
        if (!keeps) return fold(std::array{shown}, mine.count, as_shown);
        std::byte* kept = recv(mine.offset);
        if (!everywhere) return fold(std::array{kept}, mine.count, result_stores_);
        fold(std::array{shown, kept}, mine.count, as_shown, result_stores_);
      },
      [&](Range chunk, Place place) {
        for (int turn = 1; turn < size_; ++turn) {
          const int r = (rank_ + turn) % size_;
          const Range part = kernels::part(chunk, size_, r);
          copy_result(recv(part.offset), at(home(r), place, part.offset - chunk.offset), part.count);
        }
      });
}

// A place holds a piece of everybody's block; each rank needs those of its own block.
void BoardCollectives::reduce_scatter() {
  const Flow::Plan chunks = plan();
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        for (int turn = 1; turn < size_; ++turn) {
          const int r = (rank_ + turn) % size_;
          const Range theirs = kernels::clip(block(r), chunk);
          publish_for(r, place, send(theirs.offset), theirs.count, piece_of(r, chunks.step));
        }
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        const Range mine = kernels::clip(block(rank_), chunk);
        gather_contributions(place, piece_of(rank_, chunks.step), send(mine.offset));
        fold(std::array{recv(chunk.offset)}, mine.count, result_stores_);
      });
}

// What every rank has at that element of its place; its own input of a rank.
void BoardCollectives::gather_contributions(Place place, std::size_t first, const std::byte* own) {
  ring_stores_.read();
  for (int r = 0; r < size_; ++r) contributions_[as_size(r)] = at(r, place, first);
  contributions_[as_size(rank_)] = own;
}

void BoardCollectives::fold(std::span<std::byte* const> into, std::size_t count, kernels::Stores first,
                            kernels::Stores second) {
  if (count == 0) return;
  std::array<void*, 2> out{};
  std::copy(into.begin(), into.end(), out.begin());
  const kernels::FoldJob job{.out = out.data(),
                             .outputs = static_cast<int>(into.size()),
                             .in = contributions_.data(),
                             .inputs = size_,
                             .count = count,
                             .divisor = call_.op == ReduceOp::average ? size_ : 1.0,
                             .stores = second,
                             .first_stores = first};
  if (!scales_) return kernels::fold(call_.dtype, call_.op, job);
  fold_scaled(job, std::span(out).first(into.size()));
}

// The others have multiplied what they published; this rank's own is, a strip at a time that a cache of its core holds.
void BoardCollectives::fold_scaled(kernels::FoldJob job, std::span<void*> out) {
  constexpr std::size_t kStripBytes = 64 << 10;
  strip_.resize(kStripBytes);
  const auto* const own = static_cast<const std::byte*>(contributions_[as_size(rank_)]);
  for (const Range now : kernels::Rounds(job.count, kStripBytes / element_)) {
    kernels::find_multiply(call_.dtype)(strip_.data(), own + now.offset * element_, now.count, call_.op.factor());
    job.count = now.count;
    contributions_[as_size(rank_)] = strip_.data();
    kernels::fold(call_.dtype, call_.op, job);
    for (const void*& in : contributions_) in = static_cast<const std::byte*>(in) + now.count * element_;
    for (void*& to : out) to = static_cast<std::byte*>(to) + now.count * element_;
  }
}

}  // namespace rondo::comm
