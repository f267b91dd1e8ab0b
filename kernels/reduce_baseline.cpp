// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce_loops.hpp"

namespace rondo::kernels {
const ReduceTable& reduce_table_baseline() { return kTable; }
}  // namespace rondo::kernels
