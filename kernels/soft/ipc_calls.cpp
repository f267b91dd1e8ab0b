// SPDX-License-Identifier: Apache-2.0
// Device memory of other processes. A handle names the exporter, its descriptor and a random identity.
#include <unistd.h>

#include <cstring>

#include "kernels/soft/call.hpp"
#include "kernels/soft/devices.hpp"
#include "kernels/soft/submit.hpp"
#include "kernels/soft/synchronize.hpp"

namespace rondo::soft {
namespace {

constexpr std::uint64_t kHandleMagic = 0x6C64'6E61'486F'646E;

struct Handle {
  std::uint64_t magic;
  SharedMemoryName memory;
  int device;  // number in the machine
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

cudaError_t get_handle(cudaIpcMemHandle_t* out, void* pointer) {
  return device_call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const Allocation* allocation = here.has.memory.at_base(pointer);
    if (allocation == nullptr || allocation->kind != Allocation::Kind::device || !allocation->exportable) {
      return cudaErrorInvalidValue;
    }
    const Handle handle = {kHandleMagic, allocation->shared->name(), allocation->device->number};
    *out = {};
    std::memcpy(out->reserved, &handle, sizeof handle);
    return cudaSuccess;
  });
}

cudaError_t open_handle(void** pointer, cudaIpcMemHandle_t raw, unsigned flags) {
  return device_call([&](Process& here) {
    if (pointer == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    Handle handle{};
    std::memcpy(&handle, raw.reserved, sizeof handle);
    if (handle.magic != kHandleMagic) return cudaErrorInvalidResourceHandle;
    if (handle.memory.pid == getpid()) return cudaErrorDeviceUninitialized;  // what CUDA says in the exporting process
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = refuse_unsafe_call(here);
    if (refused != cudaSuccess) return refused;
    Device& device = here.current();
    if (!can_access(here.settings, device.number, handle.device)) return cudaErrorPeerAccessUnsupported;
    if (const Memory::Found place = here.has.memory.find_import(handle.memory.identity, device)) {
      ++place.allocation->opened;
      *pointer = place.base;
      return cudaSuccess;
    }
    auto shared = SharedMemory::open(handle.memory);
    if (!shared) return cudaErrorInvalidResourceHandle;
    std::byte* const base = shared->data();
    here.has.memory.add(base, {Allocation::Kind::imported, shared->bytes(), &device, std::move(shared)});
    *pointer = base;
    return cudaSuccess;
  });
}

cudaError_t close_handle(void* pointer) {
  return device_call([&](Process& here) {
    Device* device = nullptr;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = refuse_unsafe_call(here);
      if (refused != cudaSuccess) return refused;
      Allocation* allocation = here.has.memory.at_base(pointer);
      if (allocation == nullptr || allocation->kind != Allocation::Kind::imported) return cudaErrorInvalidValue;
      if (allocation->opened > 1) {
        --allocation->opened;
        return cudaSuccess;
      }
      device = allocation->device;
    }
    synchronize(here, *device);
    const std::lock_guard lock(here.mutex);
    Allocation* allocation = here.has.memory.at_base(pointer);
    if (allocation == nullptr) return cudaErrorInvalidValue;
    if (--allocation->opened > 0) return cudaSuccess;  // opened again meanwhile
    here.has.memory.remove(static_cast<std::byte*>(pointer));
    return cudaSuccess;
  });
}

}  // namespace

void add_ipc_calls(cuda::Api& api) {
  api.IpcGetMemHandle = &get_handle;
  api.IpcOpenMemHandle = &open_handle;
  api.IpcCloseMemHandle = &close_handle;
}

}  // namespace rondo::soft
