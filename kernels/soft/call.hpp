// SPDX-License-Identifier: Apache-2.0
// What every call of the table has in common: the thread's last error, failed devices, calls at exit, exceptions.
#pragma once
#include <new>
#include <system_error>

#include "kernels/cuda/api.hpp"
#include "kernels/soft/process.hpp"

namespace rondo::soft {

cudaError_t remember(cudaError_t code);  // as the thread's last error, unless success

// A call that needs no device: body(process) returns its code.
template <class Body>
cudaError_t call(Body&& body) noexcept {
  Process& here = process();
  if (here.unloading) return cudaErrorCudartUnloading;
  try {
    return remember(body(here));
  } catch (const std::bad_alloc&) {
    return remember(cudaErrorMemoryAllocation);
  } catch (const std::system_error&) {  // a thread that could not be started
    return remember(cudaErrorOperatingSystem);
  } catch (...) {
    return remember(cudaErrorUnknown);
  }
}

// A call that works with the current device: refused for good after a kernel on it has failed, and it tells so too
// when that happens meanwhile.
template <class Body>
cudaError_t device_call(Body&& body) noexcept {
  return call([&](Process& here) {
    Device* device = nullptr;
    {
      const std::lock_guard lock(here.mutex);
      device = here.device(current_device());
    }
    if (device == nullptr) return cudaErrorInvalidDevice;
    if (device->has_failed()) return device->failure();
    const cudaError_t code = body(here);
    return code == cudaSuccess && device->has_failed() ? device->failure() : code;
  });
}

// Fills the rows of one file.
void add_device_calls(cuda::Api& api);
void add_error_calls(cuda::Api& api);
void add_memory_calls(cuda::Api& api);
void add_host_memory_calls(cuda::Api& api);
void add_copy_calls(cuda::Api& api);
void add_ipc_calls(cuda::Api& api);
void add_stream_calls(cuda::Api& api);
void add_event_calls(cuda::Api& api);
void add_launch_calls(cuda::Api& api);
void add_capture_calls(cuda::Api& api);
void add_graph_calls(cuda::Api& api);

}  // namespace rondo::soft
