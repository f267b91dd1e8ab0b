// SPDX-License-Identifier: Apache-2.0
// Which lane runs next.
#pragma once
#include <cstdint>

#include "kernels/simt/lane_list.hpp"
#include "kernels/simt/random.hpp"
#include "kernels/simt/scheduler.hpp"

namespace rondo::simt {

class LanePicker {
 public:
  LanePicker(const Options& options, Random& random);

  // Priorities of what has just been launched; each lane gets the priority of its unit.
  void prioritise(Grid& grid);
  void prioritise(Block& block);
  // A lane has become ready since the last choice.
  void note_ready() { newly_ready_ = true; }
  // The running lane waits: one of `ready`, which is not empty.
  Lane& choose(const LaneList& ready);
  // The running lane could go on: one of `ready` to run instead, or null.
  Lane* replacement(const Lane& running, LaneList& ready, std::uint64_t step);

 private:
  bool has_priorities() const { return options_.policy >= Policy::pct_lane; }
  std::uint64_t initial_priority();
  std::uint64_t next_gap();
  void change_priorities(const Lane& running, LaneList& ready, std::uint64_t step);
  Lane& highest(const LaneList& ready);
  Lane* higher(const Lane& running, const LaneList& ready);

  const Options& options_;
  Random& random_;
  std::size_t turn_ = 0;
  bool newly_ready_ = false;
  unsigned changes_left_ = 0;
  std::uint64_t next_change_ = 0;
};

}  // namespace rondo::simt
