// SPDX-License-Identifier: Apache-2.0
#include "comm/board/board.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "comm/base/machine.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kShortBytes = 256 << 10;

// Everything that the ranks must have agreed on up to here, in one word.
std::uint64_t chain(std::uint64_t before, const Signature& s) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t key = before * kOdd ^ s.count;
  key = key * kOdd ^
        (static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.dtype) << 8 |
         static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32);
  return key * kOdd ^ s.shape;
}

}  // namespace

Board::Board(Team& team, const Config& config)
    : team_(team),
      waiter_(team, config),
      rank_(team.rank()),
      size_(team.segment().local_size()),
      short_{.start = 0, .bytes = std::min<std::size_t>(kShortBytes, team.segment().shape().ring_bytes / 4)},
      long_{.start = short_.bytes, .bytes = team.segment().shape().ring_bytes - short_.bytes},
      spins_(team.spare_cores() ? 64 : 0) {}

void Board::note(const Signature& signature) {
  signature_ = signature;
  key_ = chain(key_, signature);
}

void Board::begin(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  first_ = true;
  waiting_ = false;
}

// Short places turn in a stretch of their own, so that they touch few pages, and what is written was read long ago.
Board::Place Board::reserve(std::size_t bytes) {
  if (bytes <= ArrivalLine::kPayload && !std::exchange(line_taken_, true)) return {.meeting = meetings_ + 1};
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  Turn& turn = rounded <= short_.bytes / 16 ? short_ : long_;
  if (!std::exchange(turn.populated, true)) populate(turn);
  if (turn.head + rounded > turn.bytes) turn.head = 0;
  const std::size_t offset = turn.start + turn.head;
  turn.head += rounded;
  return {.offset = offset};
}

// A page at a time, the first touch costs more than what is written there. Only advice: a kernel that cannot do it
// leaves the pages to be touched one by one.
void Board::populate(const Turn& turn) {
#if defined(MADV_POPULATE_WRITE)
  for (int step = 0; step < size_; ++step) {
    std::byte* start = team_.segment().ring((rank_ + step) % size_) + turn.start;
    static_cast<void>(::madvise(start, turn.bytes, step == 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ));
  }
#else
  static_cast<void>(turn);
#endif
}

std::byte* Board::at(int rank, Place place) const {
  if (place.meeting == 0) return team_.segment().ring(rank) + place.offset;
  return team_.segment().arrival(rank, place.meeting).payload.data();
}

void Board::meet() {
  ++meetings_;
  line_taken_ = false;
  ArrivalLine& mine = line(rank_);
  mine.sequence = signature_.sequence;
  mine.key = key_;
  mine.meeting.store(meetings_, std::memory_order_seq_cst);  // release for wait_for(), and before wake() looks
  for (int step = 1; step < size_; ++step) team_.bells().wake((rank_ + step) % size_);
  for (int step = 1; step < size_; ++step) wait_for((rank_ + step) % size_);
  first_ = false;
}

void Board::wait_for(int rank) {
  const ArrivalLine& theirs = line(rank);
  const auto arrived = [&] { return theirs.meeting.load(std::memory_order_acquire) == meetings_; };
  if (!arrived()) {
    for (std::uint64_t spin = 0; spin < spins_ && !arrived(); ++spin) pause_cpu();
    if (!arrived()) {
      if (!std::exchange(waiting_, true)) waiter_.begin(signature_, true, timeout_);
      const Blocked blocked{.peer = rank, .target = {}};
      while (!arrived()) waiter_.idle(std::span(&blocked, 1));
      waiter_.progressed();
    }
  }
  if (first_ && theirs.key != key_) disagree(rank);
}

// Each wrote its history before it came here. What they disagree on may be long past: the earliest call counts.
void Board::disagree(int rank) {
  std::string difference;
  Signature mine, theirs;
  const std::uint64_t latest = std::min(signature_.sequence, line(rank).sequence);
  const std::uint64_t oldest = latest - std::min(latest - 1, kHistory - 1);
  for (std::uint64_t sequence = oldest; sequence <= latest && difference.empty(); ++sequence) {
    if (!read_history(team_.own_line(), sequence, mine) || !team_.signature_of(rank, sequence, theirs)) continue;
    difference = compare(rank_, mine, rank, theirs);
  }
  if (difference.empty()) {
    difference = fmt::format("rank {} and rank {} disagree on a collective before #{}", rank_, rank, oldest);
  }
  throw Error(ErrorCode::mismatch, difference, rank);
}

}  // namespace rondo::comm
