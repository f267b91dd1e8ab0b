// SPDX-License-Identifier: Apache-2.0
// Host memory that devices reach: allocated here, or registered.
#include <sys/mman.h>

#include "kernels/soft/call.hpp"
#include "kernels/soft/submit.hpp"
#include "kernels/soft/synchronize.hpp"

namespace rondo::soft {
namespace {

cudaError_t allocate(void** pointer, std::size_t bytes, unsigned flags) {
  return device_call([&](Process& here) {
    constexpr unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (pointer == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
    *pointer = nullptr;
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = refuse_unsafe_call(here);
    if (refused != cudaSuccess) return refused;
    if (bytes == 0) return cudaSuccess;
    auto pages = PinnedPages::allocate(bytes);
    if (!pages) return cudaErrorMemoryAllocation;
    std::byte* const base = pages->data();
    here.has.memory.add(base, {Allocation::Kind::pinned, bytes, &here.current(), {}, std::move(pages)});
    *pointer = base;
    return cudaSuccess;
  });
}

// As with Free: what runs may use it.
cudaError_t remove(Process& here, void* pointer, Allocation::Kind kind, cudaError_t unknown) {
  Device* owner = nullptr;
  {
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = refuse_unsafe_call(here);
    if (refused != cudaSuccess) return refused;
    const Allocation* allocation = here.has.memory.at_base(pointer);
    if (allocation == nullptr || allocation->kind != kind) return unknown;
    owner = allocation->device;
  }
  synchronize(here, *owner);
  const std::lock_guard lock(here.mutex);
  here.has.memory.remove(static_cast<std::byte*>(pointer));
  return cudaSuccess;
}

cudaError_t release_host(void* pointer) {
  return device_call([&](Process& here) {
    if (pointer == nullptr) return cudaSuccess;
    return remove(here, pointer, Allocation::Kind::pinned, cudaErrorInvalidValue);
  });
}

cudaError_t register_memory(void* pointer, std::size_t bytes, unsigned flags) {
  return device_call([&](Process& here) {
    constexpr unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped;
    if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if ((flags & ~known) != 0) return cudaErrorNotSupported;
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = refuse_unsafe_call(here);
    if (refused != cudaSuccess) return refused;
    if (here.has.memory.overlaps(pointer, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
    here.has.memory.add(static_cast<std::byte*>(pointer),
                        {Allocation::Kind::registered, bytes, &here.current(), {}, {}});
    return cudaSuccess;
  });
}

cudaError_t unregister_memory(void* pointer) {
  return device_call([&](Process& here) {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    return remove(here, pointer, Allocation::Kind::registered, cudaErrorHostMemoryNotRegistered);
  });
}

cudaError_t device_pointer(void** out, void* host, unsigned flags) {
  return device_call([&](Process& here) {
    if (out == nullptr || flags != 0) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const Memory::Found place = here.has.memory.find(host);
    if (!place || !place.allocation->is_host()) return cudaErrorInvalidValue;
    *out = host;
    return cudaSuccess;
  });
}

}  // namespace

void add_host_memory_calls(cuda::Api& api) {
  api.HostAlloc = &allocate;
  api.FreeHost = &release_host;
  api.HostRegister = &register_memory;
  api.HostUnregister = &unregister_memory;
  api.HostGetDevicePointer = &device_pointer;
}

}  // namespace rondo::soft
