// SPDX-License-Identifier: Apache-2.0
// Ranks take turns on a core that they share, and nothing but time makes the kernel part them: two of two on one core
// though there are cores for all, or three of four. A rank that sees more ranks on its core than that core's share
// moves its thread to where fewer are. The thread's affinity mask stays what it was: threads that the program starts
// later inherit it, so a rank that is pinned for good would tie them all to its core.
#pragma once
#include "comm/team/segment.hpp"

namespace rondo::comm {

class Spread {
 public:
  Spread(Segment segment, int own_index);
  int share() const { return share_; }  // ranks of a core, when all cores have as many
  // Says where this rank is, for the others: in every few calls, and whenever a wait gets long. True: it moved.
  bool look();
  // Which of the cores where ranks are this rank's is, counted from 0 in the order of their numbers.
  int turn() const { return turn_; }
  // As far as both have said where they are.
  bool is_beside(int index) const { return is_on(index, core_); }

 private:
  void note();
  int cores_before() const;
  bool is_on(int index, std::uint32_t core) const {
    return segment_.line(index).core.load(std::memory_order_relaxed) == core;
  }
  int ranks_on(std::uint32_t core) const;
  bool leave() const;

  Segment segment_;
  int own_;
  int share_;
  std::uint32_t core_ = 0;  // as in the line
  int turn_ = 0;
  int looks_, seen_ = 0;  // that must see it in a row before it goes; that have
};

}  // namespace rondo::comm
