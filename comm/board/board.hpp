// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one node meet in shared memory: each puts what the others need into its own ring, all arrive, and
// each reads from all. What a rank has put there for one meeting may be overwritten after the next one, since arriving
// there proves that it was read; so two arrival lines are enough, and nothing is ever freed.
// All ranks reserve alike, so an offset means the same in every ring. Used by the thread that runs the collective.
#pragma once
#include <chrono>
#include <cstddef>

#include "comm/team.hpp"
#include "comm/waiter.hpp"

namespace rondo::comm {

class Board {
 public:
  Board(Team& team, const Config& config);

  // All ranks of the communicator share the segment, and a meeting has room for a few elements per pair of ranks.
  bool available() const { return size_ == team_.size() && capacity() >= 2 * kLine * static_cast<std::size_t>(size_); }
  // Every collective of the communicator, on the board or not, before it begins: who meets compares them all.
  void note(const Signature& signature);
  void begin(std::chrono::milliseconds timeout);  // of the one noted last

  // A place of `bytes` for every rank, for the next meeting; at most capacity() for all places of a meeting together.
  struct Place {
    std::size_t offset = 0;     // in the ring
    std::uint64_t meeting = 0;  // not 0: a few bytes, in that meeting's arrival line itself
  };
  Place reserve(std::size_t bytes);
  std::size_t capacity() const { return long_.bytes / 4; }
  std::byte* at(int rank, Place place) const;

  // Arrives and waits until all ranks have. Throws the communicator's failure, a mismatch with the rank it names.
  void meet();

 private:
  struct Turn {  // a stretch of every ring
    std::size_t start, bytes, head = 0;
    bool populated = false;
  };
  ArrivalLine& line(int rank) const { return team_.segment().arrival(rank, meetings_); }
  void populate(const Turn& turn);
  void wait_for(int rank);
  [[noreturn]] void disagree(int rank);

  Team& team_;
  Waiter waiter_;
  int rank_, size_;
  Turn short_, long_;
  std::uint64_t meetings_ = 0;
  std::uint64_t spins_;
  bool line_taken_ = false;  // of the next meeting
  bool first_ = false;       // of this collective: signatures are compared
  bool waiting_ = false;     // waiter_ has been told of this collective
  Signature signature_;
  std::uint64_t key_ = 0;
  std::chrono::milliseconds timeout_{};
};

}  // namespace rondo::comm
