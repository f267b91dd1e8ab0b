// SPDX-License-Identifier: Apache-2.0
// The numbers that two-level collectives hang on beside the tuning's, once, with a sentence why.
#pragma once
#include <cstddef>

namespace rondo::comm::threshold {

// Messages into which a chunk is cut at most: with more nodes it grows, rather than that its messages become too short
// to be worth their headers.
inline constexpr std::size_t kMostPiecesOfChunk = 16;
// Bytes of inputs that are widened at a time: many chunks, and memory that stays this rank's.
inline constexpr std::size_t kWidenedBytes = 16 << 20;

}  // namespace rondo::comm::threshold
