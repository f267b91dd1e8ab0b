// SPDX-License-Identifier: Apache-2.0
// Two ranks that land on one core take turns there though there are cores for all, and nothing but time makes the
// kernel part them. A rank that sees it moves its thread to a core where no rank is. The thread's affinity mask stays
// what it was: threads that the program starts later inherit it, so a rank that is pinned for good would tie them all
// to its core.
#pragma once
#include "comm/segment.hpp"

namespace rondo::comm {

class Spread {
 public:
  Spread(Segment segment, int own_index) : segment_(segment), own_(own_index) {}
  // Whenever a wait for a rank gets long and every rank could have a core.
  void look(int awaited);

 private:
  void leave() const;

  Segment segment_;
  int own_;
  int together_ = 0;  // looks in a row that saw both on one core
};

}  // namespace rondo::comm
