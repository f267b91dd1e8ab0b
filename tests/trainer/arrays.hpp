// SPDX-License-Identifier: Apache-2.0
// An array of a rank of a test, in the memory of its communicator's device, written and read from the host.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/device.hpp>

namespace rondo::test {

inline bool on_host(const Device& device) { return device.kind == Device::Kind::cpu; }

// Somebody's memory, say a gradient that lives in a bucket. On a device, copies are done when these return.
class BucketMemory {
 public:
  BucketMemory(Communicator& comm, Stream stream, void* data)
      : device_(comm.device()), comm_(&comm), stream_(stream), data_(data) {}
  template <class T>
  void write(const std::vector<T>& values) const {
    copy(data_, values.data(), values.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> read(std::size_t count) const {
    std::vector<T> values(count);
    copy(values.data(), data_, count * sizeof(T));
    return values;
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    if (on_host(device_)) {
      std::memcpy(to, from, bytes);
    } else {
      copy_on(device_, stream_, to, from, bytes);
      comm_->synchronize(stream_);
    }
  }
  Device device_;
  Communicator* comm_;
  Stream stream_;
  void* data_;
};

// Zeros at first.
class Memory {
 public:
  Memory(const Device& device, std::size_t bytes) {
    if (on_host(device)) {
      host_.resize(bytes);
    } else {
      device_ = DeviceMemory(device, bytes);
    }
  }
  void* data() { return device_.data() != nullptr ? device_.data() : host_.data(); }

 private:
  std::vector<std::byte> host_;
  DeviceMemory device_;
};

}  // namespace rondo::test
