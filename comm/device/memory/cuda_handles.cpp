// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/cuda_handles.hpp"

#include <fmt/format.h>

#include <cstring>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"
#include "comm/device/memory/frees.hpp"

namespace rondo::comm::device {
namespace {

constexpr std::chrono::seconds kAwaitFrees{2};

// From destructors: the process goes on with what could not be given back.
void report(const cuda::Api& api, cudaError_t code, int device, std::string_view what) noexcept {
  if (code == cudaSuccess) return;
  try {
    log::warn("{} device {}: {}: {}", api.name, device, what, api.GetErrorString(code));
  } catch (...) {  // no memory for the line
  }
}

}  // namespace

void check(const cuda::Api& api, cudaError_t code, int device, std::string_view what) {
  if (code == cudaSuccess) return;
  api.GetLastError();  // or the next call that asks for it would blame somebody else
  throw Error(ErrorCode::cuda, fmt::format("{} device {}: {}: {}", api.name, device, what, api.GetErrorString(code)));
}

DeviceScope::DeviceScope(const cuda::Api& api, int device) : api_(api) {
  if (api.GetDevice(&before_) != cudaSuccess) before_ = -1;
  if (before_ != device) check(api, api.SetDevice(device), device, "making it the thread's device");
}
DeviceScope::~DeviceScope() {
  if (before_ >= 0) api_.SetDevice(before_);
}

namespace owners {
namespace {
template <class Close>
void close_on(const cuda::Api& api, int device, std::string_view what, Close close) noexcept {
  int current = 0;
  if (api.GetDevice(&current) == cudaErrorCudartUnloading) return;  // at exit the runtime has given all back
  try {
    const DeviceScope scope(api, device);
    report(api, close(), device, what);
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}
// What waits for kernels.
template <class Close>
void close_in_peace(const cuda::Api& api, int device, std::string_view what, Close close) noexcept {
  try {
    free_in_peace(api, [&api, device, what, close] { close_on(api, device, what, close); });
  } catch (const std::bad_alloc&) {
    log::warn("{} device {}: {}: no memory to remember it; it stays allocated", api.name, device, what);
  }
}
}  // namespace

void close_memory(const cuda::Api& api, int device, std::byte* raw) noexcept {
  close_in_peace(api, device, "freeing memory", [&api, raw] { return api.Free(raw); });
}
void close_pinned(const cuda::Api& api, int device, std::byte* raw) noexcept {
  close_in_peace(api, device, "freeing pinned memory", [&api, raw] { return api.FreeHost(raw); });
}
// The memory is its owner's to unmap as soon as this returns; who calls it is in peace (host_region).
void close_registration(const cuda::Api& api, int device, std::byte* raw) noexcept {
  close_on(api, device, "unregistering host memory", [&] { return api.HostUnregister(raw); });
}
void close_import(const cuda::Api& api, int device, std::byte* raw) noexcept {
  close_in_peace(api, device, "closing a peer's memory", [&api, raw] { return api.IpcCloseMemHandle(raw); });
}
void close_stream(const cuda::Api& api, int device, cudaStream_t raw) noexcept {
  close_on(api, device, "destroying a stream", [&] { return api.StreamDestroy(raw); });
}
void close_event(const cuda::Api& api, int device, cudaEvent_t raw) noexcept {
  close_on(api, device, "destroying an event", [&] { return api.EventDestroy(raw); });
}
}  // namespace owners

DeviceMemory allocate_device(const cuda::Api& api, int device, std::size_t bytes) {
  const DeviceScope scope(api, device);
  void* memory = nullptr;
  cudaError_t code = api.Malloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation && await_frees(api, kAwaitFrees)) {
    api.GetLastError();
    code = api.Malloc(&memory, bytes);
  }
  check(api, code, device, fmt::format("allocating {} bytes", bytes));
  return {api, device, static_cast<std::byte*>(memory)};
}

PinnedMemory allocate_pinned(const cuda::Api& api, int device, std::size_t bytes) {
  const DeviceScope scope(api, device);
  void* memory = nullptr;
  check(api, api.HostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), device,
        fmt::format("allocating {} bytes of pinned memory", bytes));
  std::memset(memory, 0, bytes);
  return {api, device, static_cast<std::byte*>(memory)};
}

HostRegistration register_host(const cuda::Api& api, int device, std::byte* memory, std::size_t bytes) {
  const DeviceScope scope(api, device);
  check(api, api.HostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), device,
        fmt::format("pinning {} bytes of host memory", bytes));
  return {api, device, memory};
}

ImportedMemory import_memory(const cuda::Api& api, int device, const cudaIpcMemHandle_t& handle) {
  const DeviceScope scope(api, device);
  void* memory = nullptr;
  check(api, api.IpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), device, "opening a peer's memory");
  return {api, device, static_cast<std::byte*>(memory)};
}

Stream make_stream(const cuda::Api& api, int device) {
  const DeviceScope scope(api, device);
  cudaStream_t stream{};
  check(api, api.StreamCreateWithFlags(&stream, cudaStreamNonBlocking), device, "creating a stream");
  return {api, device, stream};
}

Event make_event(const cuda::Api& api, int device, Timing timing) {
  const DeviceScope scope(api, device);
  cudaEvent_t event{};
  check(api, api.EventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming), device,
        "creating an event");
  return {api, device, event};
}

std::byte* device_pointer(const cuda::Api& api, int device, std::byte* host) {
  const DeviceScope scope(api, device);
  void* pointer = nullptr;
  check(api, api.HostGetDevicePointer(&pointer, host, 0), device, "finding pinned memory's device address");
  return static_cast<std::byte*>(pointer);
}

}  // namespace rondo::comm::device
