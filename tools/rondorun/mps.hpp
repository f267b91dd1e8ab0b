// SPDX-License-Identifier: Apache-2.0
// NVIDIA's Multi-Process Service for the ranks of one launch: without it, processes that share a GPU take turns on it.
#pragma once
#include <filesystem>

namespace rondo::launcher {

// A control daemon with a folder of its own for its pipes and logs, which ends with this, and the folder with it.
class Mps {
 public:
  Mps();  // throws Error(unsupported) where nvidia-cuda-mps-control is not found, or does not start
  ~Mps();
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  std::filesystem::path pipes() const { return folder_ / "pipe"; }  // for CUDA_MPS_PIPE_DIRECTORY

 private:
  std::filesystem::path folder_;
};

}  // namespace rondo::launcher
