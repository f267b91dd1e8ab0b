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
  void reserve(std::size_t lanes) { lanes_.reserve(lanes); }
  bool empty() const { return lanes_.empty(); }
  std::size_t size() const { return lanes_.size(); }
  Lane& operator[](std::size_t index) const { return *lanes_[index]; }
  void add(Lane& lane) {
    lane.list_index = static_cast<std::uint32_t>(lanes_.size());
    lanes_.push_back(&lane);
  }
  void remove(Lane& lane) {  // the last one takes its place
    Lane* last = lanes_.back();
    lanes_[lane.list_index] = last;
    last->list_index = lane.list_index;
    lanes_.pop_back();
  }

 private:
  std::vector<Lane*> lanes_;
};

}  // namespace rondo::simt
