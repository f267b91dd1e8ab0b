// SPDX-License-Identifier: Apache-2.0
// Data whose every result is known exactly, whatever the order of the reduction. A value depends on rank, index and
// seed alone; what is only moved is any bits at all; what is reduced is small integers (for products: powers of two,
// with signs) whose partial results all fit the type exactly, fp8 among many ranks included. Compared bit by bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

namespace rondo::bench {

// A stretch of what `rank` contributes, from its element `first`.
struct Source {
  int rank = 0;
  std::size_t first = 0;
  std::uint32_t seed = 0;
};
struct Reduction {
  DataType dtype = DataType::f32;
  ReduceOp::Kind op = ReduceOp::sum;
  int world_size = 1;
};

void fill_bits(void* out, std::size_t count, DataType dtype, const Source& source);
std::size_t count_wrong_bits(const void* got, std::size_t count, DataType dtype, const Source& source);

// What a rank contributes, and how many elements of `got` are not the reduction over all ranks (source.rank is not
// used).
void fill_values(void* out, std::size_t count, const Reduction& reduction, const Source& source);
std::size_t count_wrong_values(const void* got, std::size_t count, const Reduction& reduction, const Source& source);

// premul_sum: the factor differs between ranks.
inline double factor_of(int rank) { return rank % 2 == 0 ? 1.0 : 2.0; }
inline ReduceOp operator_of(ReduceOp::Kind op, int rank) {
  return op == ReduceOp::premultiplied_sum ? ReduceOp::premul_sum(factor_of(rank)) : ReduceOp(op);
}

}  // namespace rondo::bench
