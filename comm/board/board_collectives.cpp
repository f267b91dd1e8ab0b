// SPDX-License-Identifier: Apache-2.0
#include "comm/board/board_collectives.hpp"

#include <algorithm>
#include <numeric>

namespace rondo::comm {
namespace {

constexpr std::size_t kLeastChunk = 16 << 10, kLeastHalf = 4 << 10;

}  // namespace

BoardCollectives::BoardCollectives(Team& team, const Config& config, Windows& windows)
    : team_(team),
      board_(team, config),
      direct_(team, config, board_, windows),
      flow_(team, board_, config.tuning),
      claims_(team, board_),
      ring_stores_(team.segment(), board_.index(), !team.spare_cores()),
      tuning_(config.tuning),
      chunk_bytes_(std::max<std::size_t>(config.tuning.chunk_bytes / as_size(board_.size()), kLeastChunk)),
      rank_(board_.index()),
      size_(board_.size()),
      contributions_(as_size(size_)),
      sources_(as_size(size_)),
      may_pull_(config.algorithm.empty()) {
  make_room(0, false);
}

bool BoardCollectives::takes(const Call& call) const {
  return spans_team() && fits(size_) && call.collective != Collective::send && call.collective != Collective::recv;
}

bool BoardCollectives::fits(int ranks) const { return flow_.most_place_bytes() >= kLine * as_size(ranks); }

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
      return exchange(longest_block(), 0);
    default:
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
  // Where everybody copies most of its result nothing else goes on while stores past the caches wait, and strings
  // through them cost less than loops.
  const CollectiveRow& row = row_of(call_.collective);
  const bool sums_alone = row.reduces && row.send == Extent::world;
  const bool copies_all = !row.rooted && !sums_alone && kernels::copies_as_strings();
  const std::size_t whole = cache_demand(call_, larger_bytes(), size_);
  const std::size_t demand = copies_all ? whole / 3 * 2 : whole;
  outgrows_caches_ = demand >= tuning_.streaming_bytes;
  const bool streams = outgrows_caches_ && !(sums_in_place() && stays_warm(demand));
  result_stores_ = streams ? kernels::Stores::streaming : kernels::Stores::plain;
}

// Its result goes where its input was read a moment ago.
bool BoardCollectives::sums_in_place() const {
  const CollectiveRow& row = row_of(call_.collective);
  const std::size_t bytes = (row.send == Extent::world ? as_size(size_) : 1) * call_.count * element_;
  const auto *send = static_cast<const std::byte*>(call_.send), *recv = static_cast<const std::byte*>(call_.recv);
  return row.reduces && recv >= send && recv < send + bytes;
}

// The caches still hold a chunk when its result comes: where ranks take turns on cores, only of shorter calls.
bool BoardCollectives::stays_warm(std::size_t demand) const {
  constexpr std::size_t kCrowds = 16;
  return !board_.is_crowded() || demand / kCrowds < tuning_.cached_bytes;
}

std::size_t BoardCollectives::larger_bytes() const {
  if (blocks_.empty()) return larger_count(call_, size_) * element_;
  std::size_t count = 0;
  for (const Range& block : blocks_) count += block.count;
  return count * element_;
}

// Chunks are about equally long, so that nobody waits for all of a last one.
Flow::Plan BoardCollectives::plan(std::size_t count, std::size_t pieces, std::size_t most_bytes, int source) const {
  constexpr std::size_t kRound = 64;
  const std::size_t bytes = std::min(most_bytes, flow_.most_place_bytes(source));
  const std::size_t most = std::max<std::size_t>(bytes / pieces / element_, 1);
  const std::size_t chunks = std::max<std::size_t>((count + most - 1) / most, 1);
  const std::size_t equal = std::max<std::size_t>((count + chunks - 1) / chunks, 1);
  const std::size_t step = chunks == 1 ? equal : std::min((equal + kRound - 1) / kRound * kRound, most);
  return {.count = count,
          .step = step,
          .place_bytes = step * pieces * element_,
          .handed = handed_over(count * element_, pieces),
          .source = source};
}

// What else a longer call brings into the caches puts places out that change hands: then a rank had better run ahead.
// Where results go past them early on, that is less.
bool BoardCollectives::handed_over(std::size_t block, std::size_t pieces) const {
  constexpr std::size_t kMost = 6 << 20, kMostBeside = 16 << 20;
  return tuning_.streaming_bytes < kMost ? block <= kMostBeside : block * pieces <= kMost;
}

// Where one rank writes and others read, or one reads and others write, small chunks let both go on at once. Where
// ranks take turns on cores they do not, and short ones cost turns.
std::size_t BoardCollectives::lopsided_bytes(std::size_t bytes, std::size_t most) const {
  const std::size_t half = std::clamp(bytes / 2, kLeastHalf, kLeastChunk);
  return std::clamp(bytes / 4, board_.is_crowded() ? kLeastChunk : half, most);
}

// Where ranks take turns on cores and the caches hold what all of them get, a single chunk: one more costs turns.
std::size_t BoardCollectives::gathered_bytes(std::size_t block) const {
  const bool fits = larger_bytes() * as_size(size_) <= tuning_.cached_bytes;
  return board_.is_crowded() && fits ? std::max(block, chunk_bytes_) : chunk_bytes_;
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
  const std::size_t bytes = lopsided_bytes(call_.count * element_, chunk_bytes_);
  Flow::Plan chunks = plan(call_.count, 1, bytes, call_.root);
  chunks.apart = true;  // of a scatter the piece that a root has for itself is one
  flow_.run(
      chunks,
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
  const std::size_t longest = longest_block();
  const bool keeps = everywhere || rank_ == call_.root;
  const std::size_t bytes = longest * element_;
  Flow::Plan chunks = plan(longest, 1, everywhere ? gathered_bytes(bytes) : lopsided_bytes(bytes, chunk_bytes_));
  chunks.handed = chunks.handed && size_ == 2 && are_even(block(0).count, block(1).count);
  if (!everywhere) chunks.sink = call_.root;
  flow_.run(
      chunks,
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
  const std::size_t longest = longest_block();
  const bool roots = rank_ == call_.root;
  const std::size_t bytes = lopsided_bytes(longest * as_size(size_) * element_, tuning_.chunk_bytes);
  const Flow::Plan chunks = plan(longest, as_size(size_), bytes, call_.root);
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
void BoardCollectives::exchange(std::size_t longest, std::size_t skipped) {
  Flow::Plan chunks = plan(longest - skipped, as_size(size_), tuning_.chunk_bytes);
  chunks.handed = chunks.handed && size_ == 2 && are_even(block(1 - rank_).count, recv_block(1 - rank_).count);
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
