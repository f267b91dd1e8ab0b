// SPDX-License-Identifier: Apache-2.0
// The functions of AVX-512, but for sums of two halves, which the processor adds as they are. Their bits are those of a
// sum in float that is rounded once: a float has more than twice as many digits as a half, so that rounding to it first
// changes nothing. Of three halves it would.
#include "kernels/reduce_loops.hpp"
#include "kernels/reduce_table.hpp"

namespace rondo::kernels {
namespace {

template <>
constexpr bool kFloating<_Float16> = true;

void sum_halves(const FoldJob& job) {
  if (job.inputs == 2) return fold<Plain<_Float16>, Sum>(job);
  reduce_table_avx512().rows[static_cast<int>(DataType::f16)].fold[ReduceOp::sum](job);
}

ReduceTable make_table() {
  ReduceTable table = reduce_table_avx512();
  table.name = "avx512fp16";
  ReduceRow& row = table.rows[static_cast<int>(DataType::f16)];
  row.fold[ReduceOp::sum] = row.fold[ReduceOp::premultiplied_sum] = sum_halves;
  return table;
}

}  // namespace

const ReduceTable& reduce_table_avx512fp16() {
  static const ReduceTable table = make_table();
  return table;
}
}  // namespace rondo::kernels
