// SPDX-License-Identifier: Apache-2.0
// The reduction functions of one instruction set. One source per instruction set compiles kernels/reduce_loops.hpp with
// that set's flags; reduce.cpp picks the best that the processor has, once.
#pragma once
#include "kernels/reduce.hpp"

namespace rondo::kernels {

struct ReduceRow {  // of one dtype
  DataType dtype;
  Combine combine[kReduceOpCount];
  FoldFunction fold[kReduceOpCount];
  Scale multiply;
  Scale divide;
};
struct ReduceTable {
  ReduceRow rows[kDataTypeCount];
};

const ReduceTable& reduce_table_baseline();
#ifdef RONDO_X86
const ReduceTable& reduce_table_avx2();
const ReduceTable& reduce_table_avx512();
#endif

}  // namespace rondo::kernels
