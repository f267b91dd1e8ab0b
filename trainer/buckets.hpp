// SPDX-License-Identifier: Apache-2.0
// Which part of which gradient lies where in which bucket. Pure arithmetic, equal on every rank.
#pragma once
#include <array>
#include <cstddef>
#include <span>
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
  std::size_t start = 0;  // element of the memory that holds all buckets of this dtype
  std::size_t count = 0;  // elements
  std::vector<Piece> pieces{};
};

// Parameters in the given order, which is a permutation of their indices; one open bucket per dtype. A parameter that
// fits an empty bucket is not split; the parts of one that is lie one behind the other, so that it is one array.
// Buckets come in the order in which a backward pass in that order fills them.
RONDO_API std::vector<BucketPlan> plan_buckets(const std::vector<Parameter>& parameters,
                                               const SynchronizerOptions& options, std::span<const std::size_t> order);
RONDO_API std::vector<std::size_t> reverse_order(std::size_t parameters);

// For buckets that stay as they are: the order in which a backward pass in the order of `order` fills them, but the
// last one, which carries the marks, stays the last.
RONDO_API std::vector<std::size_t> order_of_filling(const std::vector<BucketPlan>& buckets,
                                                    std::span<const std::size_t> order);

}  // namespace rondo::trainer
