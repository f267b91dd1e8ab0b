// SPDX-License-Identifier: Apache-2.0
// Bytes of the host or of a communicator's device.
#pragma once
#include <cstddef>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/device.hpp>

namespace rondo::test {

// Where the communicator's buffers have to be.
class Memory {
 public:
  Memory(const Communicator& comm, std::size_t bytes) {
    if (comm.device().kind == Device::Kind::cpu) {
      host_.resize(bytes);
    } else {
      device_ = DeviceMemory(comm.device(), bytes);
    }
  }
  void* data() const { return host_.empty() ? device_.data() : const_cast<std::byte*>(host_.data()); }

 private:
  std::vector<std::byte> host_;
  DeviceMemory device_;
};

}  // namespace rondo::test
