// SPDX-License-Identifier: Apache-2.0
// Device memory and streams for those who do not want CUDA's headers: enough for examples and tests, on GPUs and on
// simulated devices alike. Programs that use CUDA pass their own pointers and streams instead.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo {

// Visible to this process. Error(unsupported) says what is missing where there are none.
RONDO_API int device_count(Device::Kind kind);

// Bytes on a device (index -1: the first), zeroed. Copies return when they are done; they wait for what is on the
// default stream and for no other: synchronize first. Given back, like cudaFree does, when the device's streams are
// through; where ranks are threads on one device, also not before none of their collectives runs. Whoever calls
// cudaFree itself there holds up ranks that have yet to launch what a running kernel waits for.
class RONDO_API DeviceMemory {
 public:
  DeviceMemory() = default;
  // Error(cuda): there is no memory for it.
  DeviceMemory(Device device, std::size_t bytes);
  DeviceMemory(Device device, std::size_t count, std::size_t element_bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  void* data() const { return data_; }          // an address of the device; null where there are no bytes
  std::size_t bytes() const { return bytes_; }  // as they were asked for
  // From and to host memory, at `offset` bytes into this. invalid_argument: past the end.
  void copy_from(const void* host, std::size_t bytes, std::size_t offset = 0);
  void copy_to(void* host, std::size_t bytes, std::size_t offset = 0) const;
  void fill(unsigned char byte);  // all of it

 private:
  Device device_{};
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The same, of elements.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  // `count` zeros, or a copy of `values`.
  DeviceArray(Device device, std::size_t count) : memory_(device, count, sizeof(T)), count_(count) {}
  DeviceArray(Device device, std::span<const T> values) : DeviceArray(device, values.size()) { copy_from(values); }
  DeviceArray(Device device, const std::vector<T>& values) : DeviceArray(device, std::span<const T>(values)) {}

  T* data() const { return static_cast<T*>(memory_.data()); }  // an address of the device
  std::size_t size() const { return count_; }                  // elements
  std::span<T> span() const { return {data(), count_}; }       // for the verbs; the host may not read it
  // To the first elements; invalid_argument: more than there are.
  void copy_from(std::span<const T> values) { memory_.copy_from(values.data(), values.size_bytes()); }
  // A copy of all elements.
  std::vector<T> to_host() const {
    std::vector<T> values(count_);
    memory_.copy_to(values.data(), count_ * sizeof(T));
    return values;
  }
  void fill(unsigned char byte) { memory_.fill(byte); }  // every byte of it

 private:
  DeviceMemory memory_;
  std::size_t count_ = 0;
};

// Enqueued on `stream` (null: the default one) of `device`, for memory of any making: the caller's own, a Window's.
// `to` and `from` may each be memory of the host, which must stay as it is until the stream has passed the copy.
// Error(invalid_argument): null, unless there are no bytes.
RONDO_API void copy_on(Device device, Stream stream, void* to, const void* from, std::size_t bytes);
RONDO_API void fill_on(Device device, Stream stream, void* to, unsigned char byte, std::size_t bytes);

// A stream that waits for no other, not even the default one.
class RONDO_API DeviceStream {
 public:
  DeviceStream() = default;
  explicit DeviceStream(Device device);  // Error(unsupported): there is no such device
  DeviceStream(DeviceStream&& other) noexcept;
  DeviceStream& operator=(DeviceStream&& other) noexcept;
  ~DeviceStream();

  Stream get() const { return stream_; }  // valid while this object lives
  void synchronize() const;               // without a bound; Communicator::synchronize has one

 private:
  Device device_{};
  Stream stream_ = nullptr;
};

// A place between the things on a stream, for the time from one to another.
class RONDO_API DeviceEvent {
 public:
  DeviceEvent() = default;
  explicit DeviceEvent(Device device);  // Error(unsupported): there is no such device
  DeviceEvent(DeviceEvent&& other) noexcept;
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent();

  void record(Stream stream);  // behind what is on it now; the place before is forgotten
  // Streams must have passed both: synchronize first.
  double seconds_since(const DeviceEvent& earlier) const;

 private:
  Device device_{};
  void* event_ = nullptr;
};

}  // namespace rondo
