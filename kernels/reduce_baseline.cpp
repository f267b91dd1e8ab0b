// SPDX-License-Identifier: Apache-2.0
#define RONDO_INSTRUCTION_SET "baseline"
#include "kernels/reduce_rows.hpp"

namespace rondo::kernels {
const ReduceTable& reduce_table_baseline() { return kTable; }
}  // namespace rondo::kernels
