// SPDX-License-Identifier: Apache-2.0
// One move-only owner for each thing the CUDA runtime hands out, and its errors as ours. Destructors do not throw:
// what cannot be given back is logged.
#pragma once
#include <cstddef>
#include <string_view>
#include <utility>

#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

// Throws Error(cuda) unless `code` is cudaSuccess: "sim device 0: allocating 4096 bytes: out of memory".
void check(const cuda::Api& api, cudaError_t code, int device, std::string_view what);

// The thread's current device, put back at the end.
class DeviceScope {
 public:
  DeviceScope(const cuda::Api& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const cuda::Api& api_;
  int before_ = -1;
};

namespace owners {
// What all owners have in common: a raw handle of a device, given back by Close(api, handle).
template <class Raw, auto Close>
class Owner {
 public:
  Owner() = default;
  Owner(const cuda::Api& api, int device, Raw raw) : api_(&api), device_(device), raw_(raw) {}
  Owner(Owner&& other) noexcept : api_(other.api_), device_(other.device_), raw_(std::exchange(other.raw_, Raw{})) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this == &other) return *this;
    reset();
    api_ = other.api_;
    device_ = other.device_;
    raw_ = std::exchange(other.raw_, Raw{});
    return *this;
  }
  ~Owner() { reset(); }
  void reset() noexcept {
    if (raw_ != Raw{}) Close(*api_, device_, std::exchange(raw_, Raw{}));
  }
  Raw get() const { return raw_; }
  Raw release() { return std::exchange(raw_, Raw{}); }  // gives up ownership: a deliberate leak
  explicit operator bool() const { return raw_ != Raw{}; }
  int device() const { return device_; }

 private:
  const cuda::Api* api_ = nullptr;
  int device_ = -1;
  Raw raw_{};
};
void close_memory(const cuda::Api&, int device, std::byte* raw) noexcept;
void close_pinned(const cuda::Api&, int device, std::byte* raw) noexcept;
void close_registration(const cuda::Api&, int device, std::byte* raw) noexcept;
void close_import(const cuda::Api&, int device, std::byte* raw) noexcept;
void close_stream(const cuda::Api&, int device, cudaStream_t raw) noexcept;
void close_event(const cuda::Api&, int device, cudaEvent_t raw) noexcept;
}  // namespace owners

using DeviceMemory = owners::Owner<std::byte*, owners::close_memory>;
using PinnedMemory = owners::Owner<std::byte*, owners::close_pinned>;            // HostAlloc: portable, mapped
using HostRegistration = owners::Owner<std::byte*, owners::close_registration>;  // of memory that others own
using ImportedMemory = owners::Owner<std::byte*, owners::close_import>;
using Stream = owners::Owner<cudaStream_t, owners::close_stream>;
using Event = owners::Owner<cudaEvent_t, owners::close_event>;

DeviceMemory allocate_device(const cuda::Api& api, int device, std::size_t bytes);  // contents: anything
PinnedMemory allocate_pinned(const cuda::Api& api, int device, std::size_t bytes);  // zeroed
HostRegistration register_host(const cuda::Api& api, int device, std::byte* memory, std::size_t bytes);
ImportedMemory import_memory(const cuda::Api& api, int device, const cudaIpcMemHandle_t& handle);
Stream make_stream(const cuda::Api& api, int device);  // non-blocking
enum class Timing { off, on };
Event make_event(const cuda::Api& api, int device, Timing timing = Timing::off);

// What kernels of `device` use to reach pinned or registered host memory.
std::byte* device_pointer(const cuda::Api& api, int device, std::byte* host);

}  // namespace rondo::comm::device
