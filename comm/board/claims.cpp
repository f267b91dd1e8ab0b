// SPDX-License-Identifier: Apache-2.0
#include "comm/board/claims.hpp"

namespace rondo::comm {

Claims::Claims(Team& team, Board& board)
    : board_(board), lines_(team.segment().claims()), index_(board.index()), size_(board.size()) {}

bool Claims::claim(std::size_t piece) {
  std::atomic<std::uint64_t>& word = lines_.piece(piece);
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  if (seen >= claimed_by(0)) return false;  // of this meeting
  // Relaxed: the meeting has ordered what this rank will read.
  return word.compare_exchange_strong(seen, claimed_by(index_), std::memory_order_relaxed);
}

void Claims::finish(std::size_t piece) {
  lines_.piece(piece).store(claimed_by(index_) | 1, std::memory_order_release);  // for await()
  board_.wake();
}

void Claims::finish_own(bool waits) {
  const auto own = static_cast<std::size_t>(index_), size = static_cast<std::size_t>(size_);
  finish(own);
  for (std::size_t step = 1; waits && step < size; ++step) await((own + step) % size, size);
}

int Claims::await(std::size_t piece, std::size_t pieces) {
  const std::atomic<std::uint64_t>& word = lines_.piece(piece);
  std::uint64_t seen = word.load(std::memory_order_acquire);
  const auto is_claimed = [&] { return seen >= claimed_by(0); };  // of this meeting
  const auto is_done = [&] { return (seen & 1) != 0 && is_claimed(); };
  if (is_done()) return claimer(seen);
  const int owner = static_cast<int>(((piece + 1) * static_cast<std::size_t>(size_) - 1) / pieces);
  while (!is_done()) {
    const int by = is_claimed() ? claimer(seen) : owner;
    board_.linger(by, [by](int other) { return other == by; });
    seen = word.load(std::memory_order_acquire);
  }
  board_.progressed();
  return claimer(seen);
}

}  // namespace rondo::comm
