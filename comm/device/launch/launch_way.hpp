// SPDX-License-Identifier: Apache-2.0
// How kernels are launched: with the attributes that the settings want and the machine has.
#pragma once
#include <string>

#include "comm/device/launch/device_tuner.hpp"
#include "comm/device/setup/settings.hpp"
#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

class LaunchWay {
 public:
  LaunchWay(const cuda::Api& api, int device, const Settings& settings);

  // behind_event: an event that the stream waits for comes before it, so that it could not begin early.
  cudaError_t launch(KernelKind kind, const void* kernel, int blocks, int threads, void* argument, cudaStream_t stream,
                     bool behind_event) const;

  // Why not, where it was wanted; "" where it is done, or was not wanted.
  const std::string& no_early_launch() const { return no_early_launch_; }
  const std::string& no_sync_domain() const { return no_sync_domain_; }

 private:
  const cuda::Api& api_;
  std::string no_early_launch_, no_sync_domain_;
  bool early_, domain_;
};

}  // namespace rondo::comm::device
