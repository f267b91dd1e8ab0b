// SPDX-License-Identifier: Apache-2.0
// From calls to the kernels' argument: calls that one kernel can run, in the order in which it will run them.
#pragma once
#include <span>
#include <vector>

#include "comm/call/signature.hpp"
#include "comm/device/launch/device_tuner.hpp"
#include "comm/device/memory/windows.hpp"
#include "kernels/device/kernels.hpp"

namespace rondo::comm::device {

// One launch in the making. Its kernel is that of the first call put into it; its grid has as many blocks as the call
// that wants most, and calls that want fewer leave the others idle.
class Batch {
 public:
  Batch(const Regions& regions, const Windows& windows, std::chrono::milliseconds timeout);

  bool empty() const {
    return launch_.operations == 0 && launch_.messages == 0 && push_.operations == 0 && sum_.operations == 0;
  }
  // Of the same kernel, and there is room. Messages come before collectives.
  bool takes(const Call& call, const Choice& choice) const;
  void add_collective(const Call& call, const Choice& choice, const Signature& signature);
  void add_message(const Call& call, const Choice& choice, const Signature& signature);
  void clear();

  const void* kernel(const cuda::Kernels& kernels) const;
  KernelKind kind() const { return kernel_; }
  int blocks() const { return blocks_; }
  int threads() const { return threads_; }
  void* argument() {
    if (is_push()) return &push_;
    return is_window_sum() ? static_cast<void*>(&sum_) : &launch_;
  }
  // A graph holds calls of the communicator, so that two launches may run at the same time.
  void guard() { launch_.guarded = push_.guarded = sum_.guarded = 1; }

 private:
  bool is_push() const { return kernel_ == KernelKind::push; }
  bool is_window_sum() const { return kernel_ == KernelKind::window && special_ >= 0; }
  void widen(const Choice& choice);
  std::int32_t put_counts(std::span<const std::size_t> counts);
  void find_windows(const Call& call, bool stages, kernels::device::Operation& operation) const;

  const Regions& regions_;
  const Windows& windows_;
  KernelKind kernel_ = KernelKind::simple;
  int blocks_ = 0, threads_ = 0, counts_ = 0;
  kernels::device::Launch launch_;
  int special_ = -1;  // of pushes a PushKernel, of windows a WindowSum or -1
  kernels::device::PushLaunch push_;
  kernels::device::WindowSumLaunch sum_;
};

// The order in which a rank's messages of a group go into launches: by distance to the peer, then as recorded for that
// peer, then by sender. It is one order of all messages, so the first that is not yet done is under way at both its
// ends however many launches each of them needs, and no launch waits for one that comes later.
std::vector<Call> in_launch_order(std::span<const Call> messages, int rank, int world_size);

}  // namespace rondo::comm::device
