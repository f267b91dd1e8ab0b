// SPDX-License-Identifier: Apache-2.0
// The blocks that one rank's kernels may have running on its device: reserved for one communicator, and, once a device
// has none left, used in turn by later ones of the same driver. A driver is who makes a rank's calls: a rank of
// threads that share a device, else the process. Launches of a berth run one after the other, in the driver's own order
// of calls; why that cannot deadlock: docs/decisions/gpu-memory.md. Any thread may use a berth.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

class Berth {
 public:
  Berth(int driver, std::uint32_t blocks) : driver_(driver), blocks_(blocks) {}
  Berth(const Berth&) = delete;
  Berth& operator=(const Berth&) = delete;

  int driver() const { return driver_; }
  std::uint32_t blocks() const { return blocks_; }

  // Communicators that have it. Whoever captured calls in graphs has it alone: nobody can put replays in turn.
  int users() const;
  bool is_in_graphs() const;
  bool enter();  // false: it is in graphs that live
  void leave();
  bool hold_for_graph();  // false: others have it too
  void release_from_graph();

  // While it lives nobody else enqueues on the berth.
  class Turn {
   public:
    // `user`: who launches. `before`: to wait for; null: nothing, or the user's own launch was the latest.
    Turn(Berth& berth, const void* user) : berth_(berth), lock_(berth.order_), user_(user) {}
    cudaEvent_t before() const { return berth_.latest_user_ == user_ ? nullptr : berth_.latest_; }
    void launched(cudaEvent_t event) {  // recorded after the user's launches; it lives until forget()
      berth_.latest_ = event;
      berth_.latest_user_ = user_;
    }

   private:
    Berth& berth_;
    std::unique_lock<std::mutex> lock_;
    const void* user_;
  };
  void forget(const void* user);  // its launches have ended

 private:
  const int driver_;
  const std::uint32_t blocks_;
  mutable std::mutex mutex_;  // guards the next two
  int users_ = 0, graphs_ = 0;
  std::mutex order_;  // guards the rest
  cudaEvent_t latest_ = nullptr;
  const void* latest_user_ = nullptr;
};

}  // namespace rondo::comm::device
