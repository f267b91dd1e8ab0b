// SPDX-License-Identifier: Apache-2.0
#include "comm/node/meeting/board.hpp"

#include <algorithm>
#include <utility>

namespace rondo::comm {
namespace {

bool clock_is_slow() {
  static const bool is_slow = ns_per_reading() > threshold::kSlowClockNs;
  return is_slow;
}

std::vector<int> ranks_by_index(const Team& team) {
  std::vector<int> ranks;
  for (int rank = 0; rank < team.size(); ++rank) {
    if (team.shares_memory(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<Arrival*> arrivals_by_turn(const Segment& segment, int ranks) {
  std::vector<Arrival*> arrivals;
  for (int index = 0; index < ranks; ++index) {
    for (const int turn : {0, 1}) {
      arrivals.push_back(ranks == 2 ? &segment.arrival((index + turn) % 2, 0)
                                    : &segment.arrival(index, static_cast<std::uint64_t>(turn)));
    }
  }
  return arrivals;
}

}  // namespace

Board::Board(Team& team, const Config& config)
    : team_(team),
      waiter_(team, config),
      spread_(team.segment(), team.own_index()),
      lines_(&team.segment().line(0)),
      index_(team.own_index()),
      size_(team.segment().local_size()),
      cores_(std::min(team.cores(), size_)),
      arrivals_(arrivals_by_turn(team.segment(), size_)),
      ranks_(ranks_by_index(team)),
      readers_{size_ == 2 ? kEverybody : kNobody, size_ == 2 ? kEverybody : kNobody},
      crowded_(team.crowded()),
      leaves_rseq_(crowded_ && config.leaves_rseq),
      slow_clock_(!crowded_ && clock_is_slow()) {}

std::uint64_t Board::take_line(std::size_t bytes) {
  settle();
  return bytes <= Arrival::kPayload && !std::exchange(line_taken_, true) ? meetings_ + 1 : 0;
}

// The thread that makes the calls need not be the one that made the board.
void Board::look_around() {
  if (leaves_rseq_) leave_rseq();
  spread_.look();
}

void Board::look_for_all() {
  int looks = 0;
  for (int index = absent(); index != kNobody; index = absent()) look_again(index, looks);
  progressed();
}

// Of more than two, who is not awaited may be at a later meeting by now, and that one's key in its line.
void Board::await_the_rest() {
  compares_ = compares_ && size_ == 2;
  await_all();
}

void Board::await_reader(int index) {
  int looks = 0;
  while (!has_come(index)) look_again(index, looks);
  progressed();
}

void Board::look_for(int index) {
  int looks = 0;
  while (!is_here(index)) look_again(index, looks);
  progressed();
}

// Each wrote its history before it came here, and may have gone on.
void Board::disagree(int index) {
  const int peer = rank_of(index);
  const std::uint64_t latest = std::min(signature_.sequence, team_.arrived(peer));
  throw team_.judge(team_.find_earliest_difference(latest, peer));
}

}  // namespace rondo::comm
