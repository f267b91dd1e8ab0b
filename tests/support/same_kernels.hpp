// SPDX-License-Identifier: Apache-2.0
// A table whose kernels are all the same one, for tests that launch none.
#pragma once
#include <algorithm>
#include <span>

#include "kernels/device/kernels.hpp"

namespace rondo::test {

inline cuda::Kernels same_kernels(const void* kernel) {
  cuda::Kernels all{};
  const auto rows = std::span(reinterpret_cast<const void**>(&all), sizeof all / sizeof(void*));
  std::fill(rows.begin(), rows.end(), kernel);
  return all;
}

}  // namespace rondo::test
