// SPDX-License-Identifier: Apache-2.0
// The memory of one rank in the verifier: symbols instead of numbers, input and output overlaid when in place.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/plan/problem.hpp"

namespace rondo::kernels {

using RankSet = std::uint64_t;
constexpr RankSet set_of(int rank) { return RankSet{1} << rank; }
constexpr RankSet all_ranks(int size) { return size == kMaxPlannedRanks ? ~RankSet{0} : set_of(size) - 1; }

struct Value {
  RankSet ranks = 0;          // whose contributions it holds
  std::uint64_t order = 0;    // a digest of how they were added up; a op b is b op a
  std::uint32_t element = 0;  // of their inputs
  bool written = false;
  bool folded = false;             // a left fold in rank order
  std::uint8_t first_touches = 0;  // how often the operator's first touch was applied, to each contribution
  std::uint8_t completions = 0;
};

constexpr std::uint64_t order_of(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t low = a < b ? a : b;
  const std::uint64_t high = a < b ? b : a;
  return (low * 0x9e3779b97f4a7c15u ^ high) * 0xff51afd7ed558ccdu + 1;
}

class SymbolicMemory {
 public:
  SymbolicMemory(const Problem& problem, const Work& work, std::size_t scratch_count)
      : rank_(work.rank),
        input_count_(input_count(problem, work)),
        output_count_(output_count(problem, work)),
        scratch_count_(scratch_count) {
    const bool overlaid = is_overlaid(problem, work);
    const Overlay overlay = overlaid ? overlay_of(problem, work) : Overlay{0, input_count_};
    input_at_ = overlay.input_at;
    output_at_ = overlay.output_at;
    const std::size_t input_end = input_at_ + input_count_;
    const std::size_t output_end = output_at_ + output_count_;
    scratch_at_ = input_end > output_end ? input_end : output_end;
    cells_.resize(scratch_at_ + scratch_count_);
    for (std::size_t i = 0; i < input_count_; ++i) cells_[input_at_ + i] = raw(i);
    // What a barrier's scratch holds does not matter, so it may be read.
    if (problem.pattern == Pattern::barrier) {
      for (Value& cell : cells_) cell = raw(0);
    }
  }

  std::size_t count_of(Buffer buffer) const {
    switch (buffer) {
      case Buffer::input:
        return input_count_;
      case Buffer::output:
        return output_count_;
      case Buffer::scratch:
        return scratch_count_;
      case Buffer::none:
        break;
    }
    return 0;
  }
  bool holds(Location place, std::size_t count) const {
    return place.offset <= count_of(place.buffer) && count <= count_of(place.buffer) - place.offset;
  }
  // Index of the place in the rank's memory: equal for places that share memory.
  std::size_t cell_at(Location place) const {
    const std::size_t base = place.buffer == Buffer::input    ? input_at_
                             : place.buffer == Buffer::output ? output_at_
                                                              : scratch_at_;
    return base + place.offset;
  }
  Value& at(Location place) { return cells_[cell_at(place)]; }
  bool is_raw_input(Location place) {
    const Value& cell = at(place);
    return cell.written && cell.ranks == set_of(rank_) && cell.element == place.offset && cell.first_touches == 0 &&
           cell.completions == 0;
  }

 private:
  Value raw(std::size_t element) const {
    return {.ranks = set_of(rank_),
            .order = set_of(rank_),
            .element = static_cast<std::uint32_t>(element),
            .written = true};
  }

  int rank_;
  std::size_t input_count_, output_count_, scratch_count_;
  std::size_t input_at_ = 0, output_at_ = 0, scratch_at_ = 0;
  std::vector<Value> cells_;
};

}  // namespace rondo::kernels
