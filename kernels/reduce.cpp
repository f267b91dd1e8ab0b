// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <cstring>
#include <functional>

#include "kernels/reduce_table.hpp"
#ifdef RONDO_X86
#include <cpuid.h>
#endif

namespace rondo {
namespace {

constexpr std::string_view kOpNames[kReduceOpCount] = {"sum",     "product", "min",     "max",       "average",
                                                       "bit_and", "bit_or",  "bit_xor", "premul_sum"};

#ifdef RONDO_X86
bool has_f16c() {  // clang 14 does not know it in __builtin_cpu_supports
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

kernels::ReduceTables runnable_tables() {
  kernels::ReduceTables tables{};
  const kernels::ReduceTable** next = tables.table;
  *next++ = &kernels::reduce_table_baseline();
#ifdef RONDO_X86
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return tables;
  *next++ = &kernels::reduce_table_avx2();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    *next++ = &kernels::reduce_table_avx512();
  }
#endif
  return tables;
}

const kernels::ReduceTable& best_table() {
  static const kernels::ReduceTable& best = [] {
    const auto& tables = kernels::reduce_tables();
    const kernels::ReduceTable* last = nullptr;
    for (const auto* table : tables.table) last = table != nullptr ? table : last;
    return std::cref(*last);
  }();
  return best;
}

const kernels::ReduceRow& row_of(DataType dtype) { return best_table().rows[static_cast<int>(dtype)]; }

}  // namespace

std::string_view name_of(ReduceOp::Kind op) { return kOpNames[op]; }
bool is_supported(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).fold[op] != nullptr; }

namespace kernels {

const ReduceTables& reduce_tables() {
  static const ReduceTables tables = runnable_tables();
  return tables;
}

FoldFunction find_fold(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).fold[op]; }
Scale find_multiply(DataType dtype) { return row_of(dtype).multiply; }
Scale find_divide(DataType dtype) { return row_of(dtype).divide; }
Copy find_copy() { return best_table().copy; }

void copy(void* out, const void* in, std::size_t bytes, Stores stores) {
  if (bytes == 0) return;
  if (stores == Stores::streaming) {
    best_table().stream(out, in, bytes);
  } else {
    best_table().copy(out, in, bytes);
  }
}

void copy_twice(const CopyTarget& first, const CopyTarget& second, const void* in, std::size_t bytes) {
  best_table().copy_twice(first, second, in, bytes);
}

}  // namespace kernels
}  // namespace rondo
