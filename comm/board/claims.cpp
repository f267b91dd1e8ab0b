// SPDX-License-Identifier: Apache-2.0
#include "comm/board/claims.hpp"

namespace rondo::comm {

Claims::Claims(Team& team, Board& board)
    : board_(board), line_(team.segment().claims()), index_(board.index()), size_(board.size()) {}

bool Claims::claim(std::size_t piece) {
  std::atomic<std::uint64_t>& word = line_.pieces[piece];
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  if (seen >= claimed_by(0)) return false;  // of this meeting
  // Relaxed: the meeting has ordered what this rank will read.
  return word.compare_exchange_strong(seen, claimed_by(index_), std::memory_order_relaxed);
}

void Claims::finish(std::size_t piece) {
  line_.pieces[piece].store(claimed_by(index_) | 1, std::memory_order_release);  // for await()
  board_.wake();
}

int Claims::await(std::size_t piece) {
  const std::atomic<std::uint64_t>& word = line_.pieces[piece];
  std::uint64_t seen = word.load(std::memory_order_acquire);
  if ((seen & 1) != 0) return claimer(seen);
  while ((seen & 1) == 0) {
    const int by = claimer(seen);
    board_.linger(by, [by](int other) { return other == by; });
    seen = word.load(std::memory_order_acquire);
  }
  board_.progressed();
  return claimer(seen);
}

}  // namespace rondo::comm
