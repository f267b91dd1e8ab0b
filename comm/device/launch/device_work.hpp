// SPDX-License-Identifier: Apache-2.0
// A call on a stream, as a Work: done when the stream has passed an event behind it. May outlive the communicator.
#pragma once
#include "comm/device/launch/device_engine.hpp"

namespace rondo::comm::device {

class DeviceWork final : public rondo::detail::WorkState, public std::enable_shared_from_this<DeviceWork> {
 public:
  // Records its event on `stream`, behind the call.
  DeviceWork(std::shared_ptr<Status> status, const cuda::Api& api, int device, cudaStream_t stream);
  ~DeviceWork() override;
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  void wait() override;
  bool wait_for(std::chrono::milliseconds duration) override;
  bool done() override;
  std::exception_ptr error() override;
  void on_done(Callback callback) override;
  void tell();  // the callbacks; it is done, or its engine is gone

 private:
  std::exception_ptr failure();

  std::shared_ptr<Status> status_;
  const cuda::Api& api_;
  Event event_;
  std::vector<Callback> callbacks_;  // under the status's mutex
};

}  // namespace rondo::comm::device
