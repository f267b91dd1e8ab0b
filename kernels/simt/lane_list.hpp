// SPDX-License-Identifier: Apache-2.0
// Lanes in no lasting order; each knows its own place, so that it can be taken out at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/grid.hpp"

namespace rondo::simt {

class LaneList {
 public:
  void reserve(std::size_t lanes) { entries_.reserve(lanes); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  Lane& operator[](std::size_t index) const { return *entries_[index].lane; }
  std::uint64_t priority(std::size_t index) const { return entries_[index].priority; }
  void add(Lane& lane) {
    lane.list_index = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({&lane, *lane.priority});
  }
  void remove(Lane& lane) {  // the last one takes its place
    const Entry last = entries_.back();
    entries_[lane.list_index] = last;
    last.lane->list_index = lane.list_index;
    entries_.pop_back();
  }
  void reread_priorities() {
    for (Entry& entry : entries_) entry.priority = *entry.lane->priority;
  }

 private:
  struct Entry {
    Lane* lane;
    std::uint64_t priority;  // a copy, so that to look for the highest is to walk through one array
  };
  std::vector<Entry> entries_;
};

}  // namespace rondo::simt
