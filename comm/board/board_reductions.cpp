// SPDX-License-Identifier: Apache-2.0
// The reductions on the board.
#include <algorithm>
#include <array>

#include "comm/board/board_collectives.hpp"

namespace rondo::comm {
namespace {

// Longer all_reduces of so few ranks are summed in parts: to come back for a result costs them less than to hold up, by
// half a sum, the only other rank of the core.
constexpr int kFewRanks = 4;
constexpr std::size_t kMostOfFew = 64 << 10;

}  // namespace

std::pair<const char*, std::uint64_t> BoardCollectives::whole_limit(Collective collective) const {
  if (collective != Collective::all_reduce && collective != Collective::reduce) return {};
  if (pours_to_root(collective)) return {"half of cached_bytes", tuning_.cached_bytes / 2};
  if (size_ <= 2) return {"flat_bytes_of_two", tuning_.flat_bytes_of_two};
  if (shares_sums()) return {};
  return {"flat_bytes", tuning_.flat_bytes};
}

void BoardCollectives::reduce(bool everywhere) {
  const std::uint64_t whole = whole_limit(call_.collective).second;
  const std::size_t bytes = call_.count * element_;
  if (bytes <= whole) return reduce_whole(everywhere);
  if (everywhere && sums_together(bytes)) return reduce_together();
  reduce_in_parts(everywhere);
}

// Of two ranks with a core each, whose inputs the caches hold: the root adds a chunk while the other puts the next one.
// To put, add and fetch half of it each is as much work, one after the other.
bool BoardCollectives::pours_to_root(Collective collective) const {
  return collective == Collective::reduce && size_ == 2 && !board_.is_crowded();
}

// Pieces are as many as ranks at most, or cores would have none.
bool BoardCollectives::shares_sums() const {
  return size_ > 2 && board_.is_crowded() && as_size(size_) <= Claims::kMost;
}

bool BoardCollectives::sums_together(std::size_t bytes) const {
  return shares_sums() && bytes <= most_at_once() && (size_ > kFewRanks || bytes <= kMostOfFew);
}

// Everybody who keeps the result reads everything of everybody.
void BoardCollectives::reduce_whole(bool everywhere) {
  constexpr std::size_t kPours = 8, kLeastPoured = 8 << 10, kMostPoured = 64 << 10;
  const std::size_t poured = std::clamp(call_.count * element_ / kPours, kLeastPoured, kMostPoured);
  Flow::Plan chunks = plan(call_.count, 1, pours_to_root(call_.collective) ? poured : chunk_bytes_);
  if (!everywhere) chunks.sink = call_.root;
  flow_.run(
      chunks,
      [&](Range chunk, Place place) {
        if (everywhere || rank_ != call_.root) publish(place, send(chunk.offset), chunk.count);
      },
      Flow::kNothing,
      [&](Range chunk, Place place) {
        gather_contributions(place, 0, send(chunk.offset));
        fold(std::array{recv(chunk.offset)}, chunk.count, result_stores_);
      });
}

// Where ranks take turns on cores, each chunk more costs every rank a turn. Two ranks with a core each whose inputs the
// caches hold do better with a single place there than with another one to bring the next chunk to. Ranks must agree,
// so where one of them stores its result (in place, past the caches) may not matter here.
Flow::Plan BoardCollectives::plan_parts() const {
  const std::size_t bytes = call_.count * element_;
  if (!board_.is_crowded()) {
    const bool one_place = size_ == 2 && 2 * bytes < tuning_.cached_bytes;
    return plan(call_.count, 1, one_place ? 2 * pieces_bytes() : pieces_bytes());
  }
  return plan(call_.count, 1, crowds_chunk(bytes));
}

// Of a sum that takes so many bytes. Where only one other rank waits for the core, small caches count for more than
// turns.
std::size_t BoardCollectives::crowds_chunk(std::size_t bytes) const {
  const bool half = size_ <= kFewRanks && bytes > most_at_once() && tuning_.streaming_bytes < 8 * tuning_.chunk_bytes;
  return half ? tuning_.chunk_bytes / 2 : tuning_.chunk_bytes;
}

std::size_t BoardCollectives::most_at_once() const {
  return std::min<std::size_t>(flow_.most_call_bytes(), tuning_.chunk_bytes);
}

// Where ranks take turns on cores: everybody publishes everything, and once all have come, whoever is running folds
// what nobody has begun, into its own place, where nobody looks for what it held of that before. The others take it
// from there, most of them without having waited a second time.
void BoardCollectives::reduce_together() {
  constexpr std::size_t kLeastPiece = 8 << 10, kRound = 64;
  const std::size_t pieces = std::clamp<std::size_t>(call_.count * element_ / kLeastPiece, 1, as_size(board_.cores()));
  const std::size_t step = ((call_.count + pieces - 1) / pieces + kRound - 1) / kRound * kRound;
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
  Flow::Plan chunks = plan_parts();
  chunks.folds = chunks.handed = true;
  if (!everywhere) chunks.sink = call_.root;
  const bool hands_over = flow_.hands_over(chunks);
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
  const std::size_t pieces = as_size(size_), whole = longest_block() * pieces * element_;
  const Flow::Plan chunks = plan(longest_block(), pieces, board_.is_crowded() ? crowds_chunk(whole) : chunk_bytes_);
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
