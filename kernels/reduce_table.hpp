// SPDX-License-Identifier: Apache-2.0
// The reduction functions of one instruction set. One source per instruction set compiles kernels/reduce_rows.hpp with
// that set's flags; reduce.cpp picks the best that the processor has, once.
#pragma once
#include "kernels/average.hpp"
#include "kernels/reduce.hpp"

namespace rondo::kernels {

struct ReduceRow {  // of one dtype
  DataType dtype;
  FoldFunction fold[kReduceOpCount];
  Scale multiply;
  Scale divide;
  Widen widen = nullptr;        // of the types that an average adds up in a wider one
  Scale divide_wide = nullptr;  // of sums of these
};
struct ReduceTable {
  const char* name;
  ReduceRow rows[kDataTypeCount];
  Copy copy;    // through the caches
  Copy fetch;   // the same, from memory; or null, where it is no other
  Copy stream;  // past them
  void (*copy_twice)(const CopyTarget& first, const CopyTarget& second, const void* in, std::size_t bytes);
};

const ReduceTable& reduce_table_baseline();
#ifdef RONDO_X86
const ReduceTable& reduce_table_avx2();
const ReduceTable& reduce_table_avx512();
const ReduceTable& reduce_table_avx512fp16();
#endif

// All that this processor runs, the best one last; null after the last.
struct ReduceTables {
  const ReduceTable* table[5];
};
const ReduceTables& reduce_tables();

// Whether the processor fetches ahead within a page only. Loops over what lies in memory then read several pages side
// by side, or ask for lines ahead. A variable for tests, which try both.
extern bool fetches_within_pages;

}  // namespace rondo::kernels
