// SPDX-License-Identifier: Apache-2.0
#include "comm/node/meeting/claims.hpp"

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

// Ranks that share this one's core have pieces of their own to do.
void Claims::finish_own(bool waits) {
  const auto own = static_cast<std::size_t>(index_), size = static_cast<std::size_t>(size_);
  finish(own);
  const auto is_behind = [&](int other) { return !is_done(seen(static_cast<std::size_t>(other))); };
  for (std::size_t step = 1; waits && step < size; ++step) {
    const std::size_t other = (own + step) % size;
    if (is_done(seen(other))) continue;
    while (!is_done(seen(other))) board_.linger(static_cast<int>(other), is_behind);
    board_.progressed();
  }
}

int Claims::await(std::size_t piece, std::size_t pieces) {
  std::uint64_t word = seen(piece);
  if (is_done(word)) return claimer(word);
  const int owner = static_cast<int>(((piece + 1) * static_cast<std::size_t>(size_) - 1) / pieces);
  for (; !is_done(word); word = seen(piece)) {
    const int by = is_claimed(word) ? claimer(word) : owner;
    board_.linger(by, [by](int other) { return other == by; });
  }
  board_.progressed();
  return claimer(word);
}

}  // namespace rondo::comm
