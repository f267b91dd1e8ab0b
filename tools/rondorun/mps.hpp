// SPDX-License-Identifier: Apache-2.0
// NVIDIA's Multi-Process Service for the ranks of one launch: without it, processes that share a GPU take turns on it.
#pragma once
#include <filesystem>

#include "comm/base/fd.hpp"

namespace rondo::launcher {

// A control daemon with a folder of its own for its pipes and logs. A process beside the launcher, its keeper, ends
// both when this object ends, or however the launcher does.
class Mps {
 public:
  Mps();  // before any thread; throws Error(unsupported) where nvidia-cuda-mps-control is not found, or does not start
  ~Mps();
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  std::filesystem::path pipes() const { return folder_ / "pipe"; }  // for CUDA_MPS_PIPE_DIRECTORY

 private:
  void start_keeper();
  void tell_keeper(char what) const;

  std::filesystem::path folder_;
  Fd alive_, ended_;  // the launcher lives while it is open; it ends when the keeper has
};

}  // namespace rondo::launcher
