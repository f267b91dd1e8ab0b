// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/reduce_table.hpp"

namespace rondo::test {

// One for every instruction set that the processor has.
inline std::vector<const kernels::ReduceTable*> tables() {
  std::vector<const kernels::ReduceTable*> all;
  for (const auto* table : kernels::reduce_tables().table) {
    if (table != nullptr) all.push_back(table);
  }
  return all;
}

}  // namespace rondo::test
