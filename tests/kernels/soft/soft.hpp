// SPDX-License-Identifier: Apache-2.0
// What the tests of the soft runtime share: calls that must succeed, and small owners.
#pragma once
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/cuda/api.hpp"
#include "kernels/soft/kernel.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/support/catch.hpp"

namespace rondo::soft::testing {

inline const cuda::Api& api() { return cuda::soft_api(); }

// Every test begins and ends with nothing in use and the settings of its own.
struct Machine {
  explicit Machine(const Settings& settings = {}) {
    reset();
    REQUIRE(configure(settings));
    REQUIRE(api().SetDevice(0) == cudaSuccess);
    api().GetLastError();
  }
  ~Machine() {
    reset();
    configure({});
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

template <class T>
T* allocate(std::size_t count) {
  void* pointer = nullptr;
  REQUIRE(api().Malloc(&pointer, count * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(pointer);
}
inline std::uint32_t* zeros(std::size_t count) {
  auto* const data = allocate<std::uint32_t>(count);
  REQUIRE(api().Memset(data, 0, 4 * count) == cudaSuccess);
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  return data;
}
template <class T>
std::vector<T> read(const T* from, std::size_t count) {
  std::vector<T> values(count);
  REQUIRE(api().Memcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return values;
}
inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  REQUIRE(api().StreamCreateWithFlags(&stream, flags) == cudaSuccess);
  return stream;
}
inline cudaEvent_t make_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  REQUIRE(api().EventCreateWithFlags(&event, flags) == cudaSuccess);
  return event;
}
template <class Argument>
cudaError_t launch(const Kernel& kernel, Argument argument, cudaStream_t stream, unsigned blocks = 1,
                   unsigned threads = 32) {
  void* arguments[] = {&argument};
  return api().LaunchKernel(&kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
}

template <class Argument>
cudaError_t launch_early(const Kernel& kernel, Argument argument, cudaStream_t stream, int early = 1) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = early;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* arguments[] = {&argument};
  return api().LaunchKernelExC(&config, &kernel, arguments);
}

}  // namespace rondo::soft::testing
