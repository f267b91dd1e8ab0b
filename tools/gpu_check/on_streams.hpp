// SPDX-License-Identifier: Apache-2.0
// Memory of GPU 0, and calls on several of its streams at once with a host thread for each: what they take.
#pragma once
#include <cstddef>
#include <functional>

#include "kernels/cuda/api.hpp"

namespace rondo::gpu_check {

using cuda::Api;

// Throws std::runtime_error, which says what failed and why.
void check(const Api& api, cudaError_t status, const char* what);

class DeviceMemory {  // zeroed
 public:
  DeviceMemory(const Api& api, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : api_(other.api_), memory_(other.memory_) { other.memory_ = nullptr; }
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  template <class T = std::byte>
  T* as(std::size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + byte_offset);
  }
  void write(const void* from, std::size_t bytes, std::size_t byte_offset = 0) const;
  void read(void* to, std::size_t bytes, std::size_t byte_offset = 0) const;

 private:
  const Api& api_;
  void* memory_ = nullptr;
};

// early: the kernel may begin before what comes before it on the stream has ended.
template <class Argument>
void launch(const Api& api, const void* kernel, unsigned blocks, unsigned threads, Argument argument,
            cudaStream_t stream, bool early = false) {
  void* arguments[] = {&argument};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{dim3(blocks), dim3(threads), 0, stream, &attribute, early ? 1u : 0u};
  check(api, api.LaunchKernelExC(&config, kernel, arguments), "LaunchKernelExC");
}

struct Batches {
  int calls = 20;    // captured into a graph, or launched one after the other
  int replays = 10;  // of them in a batch
  int batches = 11;  // each gives a sample
};
struct Timing {  // of one call, by the slowest stream; over the batches
  double median_us = 0, least_us = 0, most_us = 0;
};

// enqueue(i, stream) makes one call on stream i; calls of the same number may wait for one another. Where a thread
// fails, the program says why and ends with 1, since the other streams may wait for its calls.
Timing time_calls(const Api& api, int streams, bool in_graph, const Batches& batches,
                  const std::function<void(int, cudaStream_t)>& enqueue);

}  // namespace rondo::gpu_check
