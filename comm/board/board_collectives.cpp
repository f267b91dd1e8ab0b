// SPDX-License-Identifier: Apache-2.0
#include "comm/board/board_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

// Below, everybody reads everything of everybody and one meeting is enough; above, each rank reduces its own part.
constexpr std::size_t kFlatBytes = 32 << 10;  // two ranks
constexpr std::size_t kFlatBytesOfMany = 4 << 10;
constexpr std::size_t kChunkBytes = 256 << 10;  // published per meeting; a few of them stay in cache

std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

}  // namespace

BoardCollectives::BoardCollectives(Team& team, const Config& config)
    : team_(team),
      board_(team, config),
      rings_(team.segment(), team.own_index()),
      rank_(board_.index()),
      size_(board_.size()),
      contributions_(as_size(size_)) {}

bool BoardCollectives::takes(const Call& call) const {
  return size_ == team_.size() && fits(size_) && call.collective != Collective::all_to_all_v &&
         call.collective != Collective::send && call.collective != Collective::recv;
}

void BoardCollectives::run(const Call& call, std::span<const Range> blocks) {
  call_ = call;
  blocks_ = blocks;
  element_ = size_of(call.dtype);
  scales_ = row_of(call.collective).reduces && call.op == ReduceOp::premultiplied_sum;
  if (!counts().empty()) {
    offsets_.resize(counts().size());
    std::exclusive_scan(counts().begin(), counts().end(), offsets_.begin(), std::size_t{0});
  }
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
      return exchange_blocks();
    default:
      return board_.meet();
  }
}

BoardCollectives::Place BoardCollectives::reserve(std::size_t bytes) {
  if (const std::uint64_t meeting = board_.take_line(bytes)) return {.meeting = meeting};
  return {.offset = rings_.reserve(bytes)};
}

std::byte* BoardCollectives::at(int index, Place place) const {
  return place.meeting == 0 ? rings_.at(index, place.offset) : board_.payload(index, place.meeting);
}

std::size_t BoardCollectives::step_for(std::size_t pieces) const {
  const std::size_t bytes = std::min(kChunkBytes, capacity() / 2);
  return std::max<std::size_t>(bytes / pieces / element_, 1);
}

// publish(range) of chunk k + 1 goes before consume(range) of chunk k, whose place it is handed.
template <class Publish, class Consume>
void BoardCollectives::stream(std::size_t count, std::size_t step, Publish publish_chunk, Consume consume) {
  kernels::Rounds rounds(count, step);
  auto chunk = rounds.begin();
  if (!(chunk != rounds.end())) return board_.meet();
  Place place = publish_chunk(*chunk);
  while (chunk != rounds.end()) {
    board_.meet();
    const Range range = *chunk;
    const Place published = place;
    ++chunk;
    if (chunk != rounds.end()) place = publish_chunk(*chunk);
    consume(range, published);
  }
}

// Into this rank's place, so many elements in; the operator's first touch on the way.
void BoardCollectives::publish(Place place, const std::byte* from, Range range, std::size_t first) {
  std::byte* into = at(rank_, place) + first * element_;
  if (scales_) {
    kernels::find_multiply(call_.dtype)(into, from, range.count, call_.op.factor());
  } else if (range.count != 0) {
    std::memcpy(into, from, range.count * element_);
  }
}

void BoardCollectives::fold(std::byte* into, std::size_t count) {
  kernels::fold_into(kernels::find_fold(call_.dtype, call_.op), into, contributions_.data(), size_, count, size_);
}

void BoardCollectives::reduce(bool everywhere) {
  const bool keeps = everywhere || rank_ == call_.root;
  const std::size_t flat = std::min(size_ == 2 ? kFlatBytes : kFlatBytesOfMany, capacity());
  return call_.count * element_ <= flat ? reduce_at_once(keeps) : reduce_in_parts(keeps);
}

void BoardCollectives::reduce_at_once(bool keeps) {
  const Place place = reserve(call_.count * element_);
  publish(place, send(0), {0, call_.count});
  board_.meet();
  if (!keeps) return;
  for (int r = 0; r < size_; ++r) contributions_[as_size(r)] = at(r, place);
  fold(recv(0), call_.count);
}

// Each rank reduces its part of a chunk, which nobody else needs to see before. A meeting publishes chunk k + 1 and the
// reduced parts of chunk k.
void BoardCollectives::reduce_in_parts(bool keeps) {
  Place reduced;
  Range reduced_chunk{};
  const auto collect = [&] {
    for (int step = 0; step < size_ && keeps; ++step) {
      const int r = (rank_ + step) % size_;
      const Range part = kernels::part(reduced_chunk, size_, r);
      copy_block(recv(part.offset), at(r, reduced), part.count);
    }
  };
  stream(
      call_.count, step_for(2),
      [&](Range chunk) {
        const Place place = reserve(chunk.count * element_);
        const Range mine = scales_ ? Range{} : kernels::part(chunk, size_, rank_);
        const std::size_t before = scales_ ? chunk.count : mine.offset - chunk.offset;
        const std::size_t after = before + mine.count;
        publish(place, send(chunk.offset), {0, before});
        publish(place, send(chunk.offset + after), {0, chunk.count - after}, after);
        return place;
      },
      [&](Range chunk, Place published) {
        collect();
        const Range mine = kernels::part(chunk, size_, rank_);
        for (int r = 0; r < size_; ++r) {
          contributions_[as_size(r)] = at(r, published) + (mine.offset - chunk.offset) * element_;
        }
        if (!scales_) contributions_[as_size(rank_)] = send(mine.offset);
        reduced = reserve(kernels::part(chunk, size_, 0).count * element_);
        reduced_chunk = chunk;
        fold(at(rank_, reduced), mine.count);
      });
  board_.meet();
  collect();
}

// A meeting publishes a chunk of everybody's block; each rank needs that of its own block.
void BoardCollectives::reduce_scatter() {
  stream(
      longest_block(), step_for(as_size(size_)),
      [&](Range chunk) {
        const Place place = reserve(as_size(size_) * chunk.count * element_);
        for (int r = 0; r < size_; ++r) {
          const Range theirs = kernels::clip(block(r), chunk);
          publish(place, send(theirs.offset), theirs, as_size(r) * chunk.count);
        }
        return place;
      },
      [&](Range chunk, Place published) {
        const std::size_t mine = as_size(rank_) * chunk.count * element_;
        for (int r = 0; r < size_; ++r) contributions_[as_size(r)] = at(r, published) + mine;
        fold(recv(chunk.offset), kernels::clip(block(rank_), chunk).count);
      });
}

void BoardCollectives::broadcast() {
  const bool roots = rank_ == call_.root;
  stream(
      call_.count, step_for(1),
      [&](Range chunk) {
        const Place place = reserve(chunk.count * element_);
        if (roots) publish(place, send(chunk.offset), chunk);
        return place;
      },
      [&](Range chunk, Place published) {
        copy_block(recv(chunk.offset), roots ? send(chunk.offset) : at(call_.root, published), chunk.count);
      });
}

void BoardCollectives::gather_blocks(bool everywhere) {
  const bool keeps = everywhere || rank_ == call_.root;
  stream(
      longest_block(), step_for(1),
      [&](Range chunk) {
        const Place place = reserve(chunk.count * element_);
        publish(place, send(chunk.offset), {0, kernels::clip(block(rank_), chunk).count});
        return place;
      },
      [&](Range chunk, Place published) {
        for (int step = 0; step < size_ && keeps; ++step) {
          const int r = (rank_ + step) % size_;
          const Range theirs = kernels::clip(block(r), chunk);
          const std::byte* from = r == rank_ ? send(chunk.offset) : at(r, published);
          copy_block(recv(theirs.offset), from, theirs.count);
        }
      });
}

void BoardCollectives::scatter_blocks() {
  const bool roots = rank_ == call_.root;
  stream(
      longest_block(), step_for(as_size(size_)),
      [&](Range chunk) {
        const Place place = reserve(as_size(size_) * chunk.count * element_);
        for (int r = 0; r < size_ && roots; ++r) {
          const Range theirs = kernels::clip(block(r), chunk);
          if (r != rank_) publish(place, send(theirs.offset), theirs, as_size(r) * chunk.count);
        }
        return place;
      },
      [&](Range chunk, Place published) {
        const Range mine = kernels::clip(block(rank_), chunk);
        const std::byte* from = at(call_.root, published) + as_size(rank_) * chunk.count * element_;
        copy_block(recv(chunk.offset), roots ? send(mine.offset) : from, mine.count);
      });
}

void BoardCollectives::exchange_blocks() {
  stream(
      call_.count, step_for(as_size(size_)),
      [&](Range chunk) {
        const Place place = reserve(as_size(size_) * chunk.count * element_);
        for (int r = 0; r < size_; ++r) {
          if (r != rank_) publish(place, send(block(r).offset + chunk.offset), chunk, as_size(r) * chunk.count);
        }
        return place;
      },
      [&](Range chunk, Place published) {
        for (int step = 0; step < size_; ++step) {
          const int r = (rank_ + step) % size_;
          const std::size_t offset = block(r).offset + chunk.offset;
          const std::byte* from = at(r, published) + as_size(rank_) * chunk.count * element_;
          copy_block(recv(offset), r == rank_ ? send(offset) : from, chunk.count);
        }
      });
}

std::span<const std::size_t> BoardCollectives::counts() const {
  return call_.send_counts.empty() ? call_.recv_counts : call_.send_counts;
}

kernels::Range BoardCollectives::block(int of) const {
  if (!blocks_.empty()) return blocks_[as_size(of)];
  if (counts().empty()) return {as_size(of) * call_.count, call_.count};
  return {offsets_[as_size(of)], counts()[as_size(of)]};
}

std::size_t BoardCollectives::longest_block() const {
  if (blocks_.empty() && counts().empty()) return call_.count;
  std::size_t longest = 0;
  for (int of = 0; of < size_; ++of) longest = std::max(longest, block(of).count);
  return longest;
}

void BoardCollectives::copy_block(std::byte* into, const std::byte* from, std::size_t count) const {
  if (into != from && count != 0) std::memmove(into, from, count * element_);
}

}  // namespace rondo::comm
