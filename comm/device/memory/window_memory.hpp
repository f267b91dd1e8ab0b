// SPDX-License-Identifier: Apache-2.0
// One allocation or registration of Windows, given back at the end of its life.
#pragma once
#include "comm/device/launch/device_engine.hpp"

namespace rondo::comm::device {

class WindowMemory {
 public:
  WindowMemory() = default;
  WindowMemory(std::shared_ptr<Status> status, Windows::Allocation allocation)
      : status_(std::move(status)), allocation_(allocation) {}
  WindowMemory(WindowMemory&& other) noexcept
      : status_(std::move(other.status_)), allocation_(std::exchange(other.allocation_, {})) {}
  WindowMemory& operator=(WindowMemory&& other) noexcept {
    std::swap(status_, other.status_);
    std::swap(allocation_, other.allocation_);
    return *this;
  }
  ~WindowMemory();

  void* data() const { return allocation_.data; }

 private:
  std::shared_ptr<Status> status_;
  Windows::Allocation allocation_;
};

WindowMemory allocate(DeviceEngine& engine, std::size_t bytes);
WindowMemory register_memory(DeviceEngine& engine, void* data, std::size_t bytes);

}  // namespace rondo::comm::device
