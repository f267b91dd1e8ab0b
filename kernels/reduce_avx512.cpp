// SPDX-License-Identifier: Apache-2.0
#define RONDO_INSTRUCTION_SET "avx512"
#include "kernels/reduce_rows.hpp"

namespace rondo::kernels {
const ReduceTable& reduce_table_avx512() { return kTable; }
}  // namespace rondo::kernels
