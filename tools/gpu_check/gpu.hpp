// SPDX-License-Identifier: Apache-2.0
// How programs that need a GPU begin.
#pragma once
#include <fmt/format.h>

#include <string>

#include "kernels/cuda/api.hpp"

namespace rondo::gpu_check {

inline constexpr int kSkipped = 77;  // how a program ends that says "skipped: " and why

// Null where there is no GPU to run on: that and why has then been said.
inline const cuda::Api* find_gpu(bool simulated) {
  if (simulated) return &cuda::soft_api();
  std::string obstacle;
  const cuda::Api* api = cuda::find_cuda(obstacle);
  if (api == nullptr) fmt::print("skipped: {}\n", obstacle);
  return api;
}

}  // namespace rondo::gpu_check
