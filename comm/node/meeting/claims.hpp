// SPDX-License-Identifier: Apache-2.0
// Work that has to be done once, by any of the ranks that have met: pieces, each by whoever claims it first. Where
// ranks take turns on cores, that is whoever is running, and the others find it done when their turn comes. Where each
// has a core, each does its own: a claim would have to travel. All have left one such work before the next one begins,
// since all meet in between: so there is one word for each piece. Used by the thread that runs the collective.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/node/meeting/board.hpp"

namespace rondo::comm {

class Claims {
 public:
  static constexpr std::size_t kMost = ClaimLines::kPieces;  // pieces

  Claims(Team& team, Board& board);

  // After a meeting of all, once. work(piece) does one that this rank has claimed; take(piece, index) is called for
  // each that the rank of that index has done, and follows what that rank did. backwards: see Sweep.
  template <class Work, class Take>
  void share(std::size_t pieces, bool backwards, Work work, Take take) {
    // A core that ranks share begins where it did the last time.
    const bool claims = board_.crowded();
    const auto takers = static_cast<std::size_t>(claims ? board_.cores() : size_);
    const auto taker = std::min(static_cast<std::size_t>(claims ? board_.turn_of_core() : index_), takers - 1);
    const std::size_t first = taker * pieces / takers, near = (taker + 1) * pieces / takers - first;
    const auto nth = [&](std::size_t step) {
      return (first + (backwards && step < near ? near - 1 - step : step)) % pieces;
    };
    std::uint64_t own = 0;  // a bit for each
    for (std::size_t step = 0; step < (claims ? pieces : near); ++step) {
      const std::size_t piece = nth(step);
      if (claims && !claim(piece)) continue;
      work(piece);
      finish(piece);
      own |= std::uint64_t{1} << piece;
    }
    for (std::size_t step = 0; step < pieces; ++step) {
      const std::size_t piece = nth(step);
      if ((own >> piece & 1) == 0) take(piece, await(piece, pieces));
    }
  }

  // Where everybody has done a piece of its own, the one of its index: says so, and where it `waits`, until all have.
  // All need not have met, if somebody waits: others may have finished the next ones' already, but their words only
  // grow.
  void finish_own(bool waits);

 private:
  static constexpr unsigned kIndexBits = 16;
  // Of a piece: the meeting it belongs to, who claimed it, and whether it is done.
  std::uint64_t claimed_by(int index) const {
    return (board_.meeting() << kIndexBits | static_cast<std::uint64_t>(index)) << 1;
  }
  static int claimer(std::uint64_t word) { return static_cast<int>(word >> 1 & ((1U << kIndexBits) - 1)); }
  std::uint64_t seen(std::size_t piece) const { return lines_.piece(piece).load(std::memory_order_acquire); }
  bool is_claimed(std::uint64_t word) const { return word >= claimed_by(0); }  // in this meeting
  bool is_done(std::uint64_t word) const { return (word & 1) != 0 && is_claimed(word); }
  bool claim(std::size_t piece);
  void finish(std::size_t piece);
  int await(std::size_t piece, std::size_t pieces);  // until it is done; by whom

  Board& board_;
  ClaimLines& lines_;
  int index_, size_;
};

}  // namespace rondo::comm
