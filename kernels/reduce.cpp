// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <cstring>

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

const kernels::ReduceTable& best_table() {
#ifdef RONDO_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && has_f16c()) {
    return kernels::reduce_table_avx512();
  }
  if (__builtin_cpu_supports("avx2") && has_f16c()) return kernels::reduce_table_avx2();
#endif
  return kernels::reduce_table_baseline();
}

const kernels::ReduceRow& row_of(DataType dtype) {
  static const kernels::ReduceTable& table = best_table();
  return table.rows[static_cast<int>(dtype)];
}

}  // namespace

std::string_view name_of(ReduceOp::Kind op) { return kOpNames[op]; }
bool is_supported(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).combine[op] != nullptr; }

namespace kernels {

Combine find_combine(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).combine[op]; }
FoldFunction find_fold(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).fold[op]; }
Scale find_multiply(DataType dtype) { return row_of(dtype).multiply; }
Scale find_divide(DataType dtype) { return row_of(dtype).divide; }

void fold(DataType dtype, ReduceOp::Kind op, const FoldJob& job) {
  if (job.count == 0 || job.outputs == 0) return;
  find_fold(dtype, op)(job.out[0], job.in, job.inputs, job.count, job.divisor);
  for (int k = 1; k < job.outputs; ++k) copy(job.out[k], job.out[0], job.count * size_of(dtype), job.stores);
}

void copy(void* out, const void* in, std::size_t bytes, Stores) {
  if (bytes != 0) std::memcpy(out, in, bytes);
}

}  // namespace kernels
}  // namespace rondo
