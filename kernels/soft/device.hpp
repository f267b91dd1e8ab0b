// SPDX-License-Identifier: Apache-2.0
// One device of this process: what has failed on it, and who may run on it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>

#include "kernels/cuda/declarations.hpp"
#include "kernels/soft/stream.hpp"

namespace rondo::soft {

// Blocks that may still run. A kernel takes all it can have at a time, first come first served.
class BlockBudget {
 public:
  explicit BlockBudget(unsigned blocks) : free_(blocks) {}
  bool take(unsigned blocks, const std::atomic<bool>& cancel);  // false: cancelled
  void give_back(unsigned blocks);
  void wake();                                             // to look at `cancel`
  static std::uint64_t shortages() { return shortages_; }  // of all devices

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned free_;
  std::uint64_t next_turn_ = 0, turn_ = 0;
  static inline std::atomic<std::uint64_t> shortages_{0};
};

struct Device {
  Device(int index_, int number_, unsigned blocks)
      : index(index_), number(number_), budget(blocks), legacy(std::make_shared<Stream>(*this, Stream::Kind::legacy)) {}

  const int index;   // among the process's
  const int number;  // in the machine
  BlockBudget budget;

  // A kernel's failure is final: every later call on the device returns it, and what its streams hold is not run.
  bool has_failed() const { return failure_.load(std::memory_order_acquire) != cudaSuccess; }
  cudaError_t failure() const { return failure_.load(std::memory_order_acquire); }
  void fail(cudaError_t code) {
    cudaError_t none = cudaSuccess;
    failure_.compare_exchange_strong(none, code, std::memory_order_acq_rel);
  }

  std::mutex launching;  // whoever frees memory holds it while the device's kernels end: as in CUDA, none begins

  // Guarded by Process::mutex.
  std::set<int> peers;  // indices; access enabled
  std::size_t allocated_bytes = 0;
  const std::shared_ptr<Stream> legacy;  // the default stream

 private:
  std::atomic<cudaError_t> failure_{cudaSuccess};
};

}  // namespace rondo::soft
