// SPDX-License-Identifier: Apache-2.0
// From a Call to what a choice of algorithm may hang on: every rank knows the same of a call.
#pragma once
#include <rondo/collective.hpp>

#include "kernels/algorithms/table.hpp"

namespace rondo::comm {

struct CallShape {
  kernels::Pattern pattern{};  // barrier where nothing is moved: such a call must still find out that others agree
  std::size_t bytes = 0;       // of a rank's larger buffer; 0 where its counts are each rank's own
  bool variable_counts = false;
  bool one_fold = false;  // an average of a type too narrow for sums: all inputs are folded at once, or in a wider type
  DataType dtype = DataType::f32;
  ReduceOp::Kind op = ReduceOp::sum;
};
CallShape shape_of(const Call& call, int world_size);

// A call that moves nothing must still find out that the others agree. Where counts are each rank's own the pairs do.
bool moves_nothing(const Call& call);

}  // namespace rondo::comm
