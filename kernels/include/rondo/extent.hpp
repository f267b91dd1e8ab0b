// SPDX-License-Identifier: Apache-2.0
// How large a rank's buffers are: what the tables of collectives and of algorithms have in common.
#pragma once
#include <cstdint>

namespace rondo {

// Sizes of one rank's buffers, as multiples of the call's count: 1, world_size, or the sum of the call's counts.
enum class Extent : std::uint8_t { none, one, world, counts };

constexpr bool has_block_per_rank(Extent e) { return e == Extent::world || e == Extent::counts; }  // one for each rank

}  // namespace rondo
