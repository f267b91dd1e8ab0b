// SPDX-License-Identifier: Apache-2.0
// Which algorithms the FIFO kernels run, for who chooses.
#pragma once
#include "kernels/algorithms/table.hpp"

namespace rondo::kernels::device {

// There is no scratch memory on devices but for what a barrier moves, which nobody reads. A channel has a share of each
// block.
constexpr bool runs_on_device(const AlgorithmRow& row) {
  if (row.host_only) return false;
  return row.pattern == Pattern::barrier || row.scratch_count(Work{.count = 1}, 1) == 0;
}

}  // namespace rondo::kernels::device
