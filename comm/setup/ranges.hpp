// SPDX-License-Identifier: Apache-2.0
// What settings may be that ranks agree on: as they are read from the environment, and as rank 0 tells of its own.
#pragma once
#include <cstdint>

#include "comm/base/pulse.hpp"

namespace rondo::comm {

template <class T>
struct Range {
  T low, high;
  constexpr bool holds(T value) const { return value >= low && value <= high; }
};
inline constexpr Range<std::uint64_t> kSliceBytes{64, 16 << 20}, kFifoSlots{2, 64};
inline constexpr Range<std::uint64_t> kSegmentBytes{1 << 16, std::uint64_t{1} << 40};
inline constexpr Range<std::uint32_t> kPatienceMs{static_cast<std::uint32_t>(kLeastLinkPatience.count()),
                                                  static_cast<std::uint32_t>(kMostLinkPatience.count())};
inline constexpr std::uint64_t kSliceUnit = 64;  // whole elements of every dtype, aligned slots

}  // namespace rondo::comm
