// SPDX-License-Identifier: Apache-2.0
#include "comm/board/board.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/base/machine.hpp"

namespace rondo::comm {
namespace {

// Everything that the ranks must have agreed on up to here, in one word.
std::uint64_t chain(std::uint64_t before, const Signature& s) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t key = before * kOdd ^ s.count;
  key = key * kOdd ^
        (static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.dtype) << 8 |
         static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32);
  return key * kOdd ^ s.shape;
}

std::vector<int> ranks_by_index(const Team& team) {
  std::vector<int> ranks;
  for (int rank = 0; rank < team.size(); ++rank) {
    if (team.shares_memory(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

Board::Board(Team& team, const Config& config)
    : team_(team),
      waiter_(team, config),
      index_(team.own_index()),
      ranks_(ranks_by_index(team)),
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

std::uint64_t Board::take_line(std::size_t bytes) {
  return bytes <= ArrivalLine::kPayload && !std::exchange(line_taken_, true) ? meetings_ + 1 : 0;
}

void Board::arrive() {
  ++meetings_;
  line_taken_ = false;
  seen_ = 1;
  ArrivalLine& mine = line(index_);
  mine.sequence = signature_.sequence;
  mine.key = key_;
  mine.meeting.store(meetings_, std::memory_order_seq_cst);  // release for absent(), and before wake() looks
  for (int step = 1; step < size(); ++step) team_.bells().wake((index_ + step) % size());
}

int Board::absent() {
  for (; seen_ < size(); ++seen_) {
    const int index = (index_ + seen_) % size();
    const ArrivalLine& theirs = line(index);
    if (theirs.meeting.load(std::memory_order_acquire) != meetings_) return index;
    if (first_ && theirs.key != key_) disagree(index);
  }
  first_ = false;
  return kNobody;
}

void Board::idle(int index) {
  if (spun_++ < spins_) return pause_cpu();
  if (!std::exchange(waiting_, true)) waiter_.begin(signature_, true, timeout_);
  const Blocked blocked{.peer = rank_of(index), .target = {}};
  waiter_.idle(std::span(&blocked, 1));
}

void Board::progressed() {
  spun_ = 0;
  if (waiting_) waiter_.progressed();
}

void Board::meet() {
  arrive();
  for (int index = absent(); index != kNobody; index = absent()) idle(index);
  progressed();
}

// Each wrote its history before it came here. What they disagree on may be long past: the earliest call counts.
void Board::disagree(int index) {
  const int own = team_.rank(), rank = rank_of(index);
  std::string difference;
  Signature mine, theirs;
  const std::uint64_t latest = std::min(signature_.sequence, line(index).sequence);
  const std::uint64_t oldest = latest - std::min(latest - 1, kHistory - 1);
  for (std::uint64_t sequence = oldest; sequence <= latest && difference.empty(); ++sequence) {
    if (!read_history(team_.own_line(), sequence, mine) || !team_.signature_of(rank, sequence, theirs)) continue;
    difference = compare(own, mine, rank, theirs);
  }
  if (difference.empty()) {
    difference = fmt::format("rank {} and rank {} disagree on a collective before #{}", own, rank, oldest);
  }
  throw Error(ErrorCode::mismatch, difference, rank);
}

}  // namespace rondo::comm
