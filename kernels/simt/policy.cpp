// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/policy.hpp"

namespace rondo::simt {

LanePicker::LanePicker(const Options& options, Random& random)
    : options_(options), random_(random), changes_left_(options.pct_changes), next_change_(next_gap()) {}

std::uint64_t LanePicker::next_gap() { return 1 + random_.below(2 * options_.pct_steps / (options_.pct_changes + 1)); }

// Above all that a change point gives.
std::uint64_t LanePicker::initial_priority() { return options_.pct_changes + 1 + (random_.bits() >> 8); }

void LanePicker::prioritise(Grid& grid) { grid.priority = initial_priority(); }

void LanePicker::prioritise(Block& block) {
  block.priority = initial_priority();
  for (unsigned t = 0; t < block.lane_count; ++t) {
    Lane& lane = block.lanes[t];
    if (t % kWarpLanes == 0) lane.warp->priority = initial_priority();
    lane.own_priority = initial_priority();
    switch (options_.policy) {
      case Policy::pct_warp:
        lane.priority = &lane.warp->priority;
        break;
      case Policy::pct_block:
        lane.priority = &block.priority;
        break;
      case Policy::pct_rank:
        lane.priority = &block.grid->priority;
        break;
      case Policy::round_robin:
      case Policy::random:
      case Policy::pct_lane:
        lane.priority = &lane.own_priority;
    }
  }
}

Lane& LanePicker::choose(const LaneList& ready) {
  if (options_.policy == Policy::random) return ready[random_.below(ready.size())];
  if (has_priorities()) return highest(ready);
  if (turn_ >= ready.size()) turn_ = 0;
  return ready[turn_++];
}

// Lanes of one unit have one priority: any of them.
Lane& LanePicker::highest(const LaneList& ready) {
  newly_ready_ = false;
  std::uint64_t best = 0;
  std::uint64_t equals = 0;
  for (std::size_t i = 0; i < ready.size(); ++i) best = ready.priority(i) > best ? ready.priority(i) : best;
  for (std::size_t i = 0; i < ready.size(); ++i) equals += ready.priority(i) == best ? 1 : 0;
  std::uint64_t skip = random_.below(equals);
  std::size_t at = 0;
  while (ready.priority(at) != best || skip-- != 0) ++at;
  return ready[at];
}

Lane* LanePicker::replacement(const Lane& running, LaneList& ready, std::uint64_t step) {
  if (has_priorities()) change_priorities(running, ready, step);
  if (ready.empty()) return nullptr;
  if (has_priorities()) return higher(running, ready);
  if (options_.policy == Policy::random && random_.below(100) < options_.switch_percent) {
    return &ready[random_.below(ready.size())];
  }
  return nullptr;
}

void LanePicker::change_priorities(const Lane& running, LaneList& ready, std::uint64_t step) {
  if (changes_left_ == 0 || step < next_change_) return;
  *running.priority = changes_left_--;
  ready.reread_priorities();
  next_change_ = step + next_gap();
  newly_ready_ = true;
}

Lane* LanePicker::higher(const Lane& running, const LaneList& ready) {
  // The running one was the highest, so without a new one only its equals are to be considered.
  Lane& candidate = newly_ready_ ? highest(ready) : ready[random_.below(ready.size())];
  if (*candidate.priority > *running.priority) return &candidate;
  return *candidate.priority == *running.priority && random_.one_in(2) ? &candidate : nullptr;
}

}  // namespace rondo::simt
