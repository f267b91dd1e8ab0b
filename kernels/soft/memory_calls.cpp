// SPDX-License-Identifier: Apache-2.0
// Device memory: what cudaMalloc gives, and what is known of any pointer.
#include <unistd.h>

#include "kernels/soft/call.hpp"
#include "kernels/soft/submit.hpp"
#include "kernels/soft/synchronize.hpp"

namespace rondo::soft {
namespace {

std::size_t memory_of_a_device(const Settings& settings) {
  if (settings.memory_bytes != 0) return settings.memory_bytes;
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

cudaError_t allocate(void** pointer, std::size_t bytes) {
  return device_call([&](Process& here) {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = refuse_unsafe_call(here);
    if (refused != cudaSuccess) return refused;
    if (bytes == 0) return cudaSuccess;
    Device& device = here.current();
    if (bytes > memory_of_a_device(here.settings) - device.allocated_bytes) return cudaErrorMemoryAllocation;
    auto shared = SharedMemory::create(bytes);
    if (!shared) return cudaErrorMemoryAllocation;
    std::byte* const base = shared->data();
    here.has.memory.add(base, {Allocation::Kind::device, bytes, &device, std::move(shared)});
    device.allocated_bytes += bytes;
    *pointer = base;
    return cudaSuccess;
  });
}

std::string freed_while_mapped(const void* pointer, int importers) {
  char text[160];
  std::snprintf(
      text, sizeof text,
      "cudaFree(%p) while %d other process(es) still map it; close the IPC mappings before the exporter frees.",
      pointer, importers);
  return text;
}

cudaError_t release(void* pointer) {
  return device_call([&](Process& here) {
    if (pointer == nullptr) return cudaSuccess;
    Device* owner = nullptr;
    int importers = 0;
    bool strict = false;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = refuse_unsafe_call(here);
      if (refused != cudaSuccess) return refused;
      const Allocation* allocation = here.has.memory.at_base(pointer);
      if (allocation == nullptr || allocation->kind != Allocation::Kind::device) return cudaErrorInvalidValue;
      owner = allocation->device;
      importers = allocation->shared->living_importers();
      strict = here.settings.strict;
    }
    synchronize_before_free(here, *owner);
    if (importers != 0) {
      here.report(freed_while_mapped(pointer, importers));
      if (strict) std::abort();
    }
    const std::lock_guard lock(here.mutex);
    const Allocation* allocation = here.has.memory.at_base(pointer);
    if (allocation == nullptr) return cudaErrorInvalidValue;  // freed twice at the same time
    owner->allocated_bytes -= allocation->bytes;
    here.has.memory.remove(static_cast<std::byte*>(pointer));
    return cudaSuccess;
  });
}

cudaError_t attributes(cudaPointerAttributes* out, const void* pointer) {
  return call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {};
    const std::lock_guard lock(here.mutex);
    const Memory::Found place = here.has.memory.find(pointer);
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2;  // cudaInvalidDeviceId
    if (!place) return cudaSuccess;
    out->type = place.allocation->is_host() ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = place.allocation->device->index;
    out->devicePointer = const_cast<void*>(pointer);
    out->hostPointer = place.allocation->is_host() ? const_cast<void*>(pointer) : nullptr;
    return cudaSuccess;
  });
}

cudaError_t memory_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  return device_call([&](Process& here) {
    if (free_bytes == nullptr || total_bytes == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    *total_bytes = memory_of_a_device(here.settings);
    *free_bytes = *total_bytes - here.current().allocated_bytes;
    return cudaSuccess;
  });
}

cudaError_t allocation_of(void** base, std::size_t* bytes, bool* exportable, const void* pointer) {
  return call([&](Process& here) {
    if (base == nullptr || bytes == nullptr || exportable == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const Memory::Found place = here.has.memory.find(pointer);
    if (!place || place.allocation->is_host()) return cudaErrorInvalidValue;
    *base = place.base;
    *bytes = place.allocation->bytes;
    *exportable = place.allocation->kind == Allocation::Kind::device && place.allocation->exportable;
    return cudaSuccess;
  });
}

}  // namespace

bool make_unexportable(void* base) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  Allocation* const allocation = here.has.memory.at_base(base);
  if (allocation == nullptr || allocation->kind != Allocation::Kind::device) return false;
  allocation->exportable = false;
  return true;
}

void add_memory_calls(cuda::Api& api) {
  api.Malloc = &allocate;
  api.Free = &release;
  api.PointerGetAttributes = &attributes;
  api.MemGetInfo = &memory_info;
  api.MemGetAllocation = &allocation_of;
}

}  // namespace rondo::soft
