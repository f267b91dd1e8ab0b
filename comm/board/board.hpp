// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one node meet in shared memory: each puts what the others need into its own ring or arrival line,
// all arrive, and each reads from all. What a rank has put there for one meeting may be overwritten after the next one,
// since arriving there proves that it was read; so two arrival lines are enough.
// Ranks are called by their index in the segment, in the order of their ranks in the team, of which they may be a part.
// Used by the thread that runs the collective.
#pragma once
#include <chrono>
#include <cstddef>
#include <vector>

#include "comm/team.hpp"
#include "comm/waiter.hpp"

namespace rondo::comm {

class Board {
 public:
  Board(Team& team, const Config& config);

  int index() const { return index_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank_of(int index) const { return ranks_[static_cast<std::size_t>(index)]; }  // in the team
  // Every collective of the communicator, on the board or not, before it begins: who meets compares them all.
  void note(const Signature& signature);
  void begin(std::chrono::milliseconds timeout);  // of the one noted last

  // The arrival line of the next meeting, as a place for a few bytes: its number, or 0 when they are too many or the
  // line is taken.
  std::uint64_t take_line(std::size_t bytes);
  std::byte* payload(int index, std::uint64_t meeting) const {
    return team_.segment().arrival(index, meeting).payload.data();
  }

  // Arrives and waits until all ranks have. Throws the communicator's failure, a mismatch with the rank it names.
  void meet();

  // The same in pieces, for those who have something else to do meanwhile: who has not arrived yet, or kNobody; a short
  // wait for a rank, after which the caller looks again; and that what was waited for has come.
  static constexpr int kNobody = -1;
  void arrive();
  int absent();
  void idle(int index);
  void progressed();

 private:
  ArrivalLine& line(int index) const { return team_.segment().arrival(index, meetings_); }
  [[noreturn]] void disagree(int index);

  Team& team_;
  Waiter waiter_;
  int index_;
  std::vector<int> ranks_;  // in the team, by index
  std::uint64_t meetings_ = 0;
  std::uint64_t spins_, spun_ = 0;
  int seen_ = 1;             // steps round the ranks up to the first that has not arrived
  bool line_taken_ = false;  // of the next meeting
  bool first_ = false;       // of this collective: signatures are compared
  bool waiting_ = false;     // waiter_ has been told of this collective
  Signature signature_;
  std::uint64_t key_ = 0;
  std::chrono::milliseconds timeout_{};
};

}  // namespace rondo::comm
