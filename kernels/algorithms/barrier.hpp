// SPDX-License-Identifier: Apache-2.0
// Dissemination barrier, ceil(log2(n)) steps (D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier
// synchronization", IJPP 17(1), 1988). After step s a rank has heard, at first or second hand, from the 2^(s+1) - 1
// ranks behind it. A Move of nothing would not travel, so one element of scratch does; what it holds nobody reads.
#pragma once
#include "kernels/algorithms/ranges.hpp"

namespace rondo::kernels {

template <Primitives P>
constexpr void dissemination_barrier(P& p, const Work& work) {
  for (int distance = 1; distance < work.size; distance *= 2) {
    exchange(p, {.count = 1, .to = ahead(work, work.rank, distance), .local = scratch(0)},
             {.count = 1, .from = ahead(work, work.rank, -distance)});
  }
}

constexpr std::size_t barrier_scratch_count(const Work&, std::size_t) { return 1; }

}  // namespace rondo::kernels
