// SPDX-License-Identifier: Apache-2.0
// Which part of which gradient lies where in which bucket. Pure arithmetic, equal on every rank.
#pragma once
#include <cstddef>
#include <vector>

#include <rondo/trainer/gradient_synchronizer.hpp>

namespace rondo::trainer {

struct Piece {
  std::size_t parameter;
  std::size_t first;   // element of the parameter
  std::size_t offset;  // element of the bucket
  std::size_t count;
};

struct BucketPlan {
  DataType dtype = DataType::f32;
  std::size_t count = 0;  // elements
  std::vector<Piece> pieces{};
};

// Reverse order of registration; one open bucket per dtype. A parameter that fits an empty bucket is not split. Buckets
// come in the order in which a backward pass in that order fills them.
RONDO_API std::vector<BucketPlan> plan_buckets(const std::vector<Parameter>& parameters,
                                               const SynchronizerOptions& options);

}  // namespace rondo::trainer
