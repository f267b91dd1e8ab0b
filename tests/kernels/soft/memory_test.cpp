// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {

TEST_CASE("Fresh memory is anything but zero, aligned, and counted", "[soft]") {
  const Machine machine({.memory_bytes = 1 << 20});
  std::size_t free_before = 0, free_after = 0, total = 0;
  REQUIRE(api().MemGetInfo(&free_before, &total) == cudaSuccess);
  CHECK(total == 1 << 20);
  CHECK(free_before == total);
  auto* const data = allocate<std::byte>(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(data) % 512 == 0);
  CHECK(read(data, 1000) == std::vector<std::byte>(1000, std::byte{0xDB}));
  REQUIRE(api().MemGetInfo(&free_after, &total) == cudaSuccess);
  CHECK(free_after == free_before - 1000);
  void* pointer = &total;
  CHECK(api().Malloc(&pointer, 1 << 20) == cudaErrorMemoryAllocation);
  CHECK(pointer == nullptr);
  CHECK(api().Malloc(&pointer, SIZE_MAX) == cudaErrorMemoryAllocation);
  CHECK(api().Malloc(&pointer, 0) == cudaSuccess);
  CHECK(pointer == nullptr);
  CHECK(api().Malloc(nullptr, 1) == cudaErrorInvalidValue);
  CHECK(api().Free(data) == cudaSuccess);
  CHECK(api().Free(nullptr) == cudaSuccess);
  REQUIRE(api().MemGetInfo(&free_after, &total) == cudaSuccess);
  CHECK(free_after == free_before);
}

TEST_CASE("Free takes the base of device memory, once", "[soft]") {
  const Machine machine;
  auto* const data = allocate<std::byte>(100);
  CHECK(api().Free(data + 1) == cudaErrorInvalidValue);
  int local = 0;
  CHECK(api().Free(&local) == cudaErrorInvalidValue);
  CHECK(api().FreeHost(data) == cudaErrorInvalidValue);
  CHECK(api().Free(data) == cudaSuccess);
  CHECK(api().Free(data) == cudaErrorInvalidValue);
}

TEST_CASE("Free waits for what runs on the device", "[soft]") {
  const Machine machine;
  auto* const data = allocate<std::uint32_t>(1 << 16);
  auto* const other = allocate<std::uint32_t>(1);
  const cudaStream_t stream = make_stream();
  for (int i = 0; i < 4; ++i) REQUIRE(launch(kAdd, Add{data, 1 << 16, 1}, stream) == cudaSuccess);
  REQUIRE(api().Free(other) == cudaSuccess);
  CHECK(api().StreamQuery(stream) == cudaSuccess);
}

TEST_CASE("Any address in an allocation leads to its facts", "[soft]") {
  const Machine machine;
  REQUIRE(api().SetDevice(2) == cudaSuccess);
  auto* const data = allocate<std::byte>(5000);
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  cudaPointerAttributes attributes{};
  REQUIRE(api().PointerGetAttributes(&attributes, data + 4999) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 2);
  CHECK(attributes.devicePointer == data + 4999);
  CHECK(attributes.hostPointer == nullptr);
  REQUIRE(api().PointerGetAttributes(&attributes, data + 5000) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);

  void* base = nullptr;
  std::size_t bytes = 0;
  bool exportable = false;
  REQUIRE(api().MemGetAllocation(&base, &bytes, &exportable, data + 777) == cudaSuccess);
  CHECK(base == data);
  CHECK(bytes == 5000);
  CHECK(exportable);
  cudaIpcMemHandle_t handle{};
  CHECK(api().IpcGetMemHandle(&handle, data) == cudaSuccess);
  CHECK_FALSE(make_unexportable(data + 1));
  REQUIRE(make_unexportable(data));
  REQUIRE(api().MemGetAllocation(&base, &bytes, &exportable, data) == cudaSuccess);
  CHECK_FALSE(exportable);
  CHECK(api().IpcGetMemHandle(&handle, data) == cudaErrorInvalidValue);
  CHECK(api().MemGetAllocation(&base, &bytes, &exportable, &bytes) == cudaErrorInvalidValue);
}

TEST_CASE("A handle is of a base, and not for the process that exports", "[soft]") {
  const Machine machine;
  auto* const data = allocate<std::byte>(100);
  cudaIpcMemHandle_t handle{};
  CHECK(api().IpcGetMemHandle(&handle, data + 1) == cudaErrorInvalidValue);
  CHECK(api().IpcGetMemHandle(&handle, &handle) == cudaErrorInvalidValue);
  REQUIRE(api().IpcGetMemHandle(&handle, data) == cudaSuccess);
  void* opened = nullptr;
  CHECK(api().IpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
  CHECK(api().IpcOpenMemHandle(&opened, handle, 0) == cudaErrorInvalidValue);
  CHECK(api().IpcOpenMemHandle(&opened, {}, cudaIpcMemLazyEnablePeerAccess) == cudaErrorInvalidResourceHandle);
  CHECK(api().IpcCloseMemHandle(data) == cudaErrorInvalidValue);
}

TEST_CASE("Pinned memory is zeroed, has device addresses and is no device memory", "[soft]") {
  const Machine machine;
  void* pinned = nullptr;
  REQUIRE(api().HostAlloc(&pinned, 100, cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess);
  CHECK(static_cast<unsigned char*>(pinned)[99] == 0);
  void* device_view = nullptr;
  CHECK(api().HostGetDevicePointer(&device_view, pinned, 0) == cudaSuccess);
  CHECK(device_view == pinned);
  CHECK(api().HostGetDevicePointer(&device_view, pinned, 1) == cudaErrorInvalidValue);
  CHECK(api().HostGetDevicePointer(&device_view, &device_view, 0) == cudaErrorInvalidValue);
  cudaPointerAttributes attributes{};
  REQUIRE(api().PointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == pinned);
  void* base = nullptr;
  std::size_t bytes = 0;
  bool exportable = true;
  CHECK(api().MemGetAllocation(&base, &bytes, &exportable, pinned) == cudaErrorInvalidValue);
  cudaIpcMemHandle_t handle{};
  CHECK(api().IpcGetMemHandle(&handle, pinned) == cudaErrorInvalidValue);
  CHECK(api().Free(pinned) == cudaErrorInvalidValue);
  CHECK(api().FreeHost(pinned) == cudaSuccess);
  CHECK(api().FreeHost(pinned) == cudaErrorInvalidValue);
  CHECK(api().HostAlloc(&pinned, 100, 64) == cudaErrorInvalidValue);
}

TEST_CASE("Mappings of one's own are registered once, and not twice", "[soft]") {
  const Machine machine;
  const std::size_t bytes = 8192;
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapping != MAP_FAILED);
  REQUIRE(api().HostRegister(mapping, bytes, cudaHostRegisterMapped) == cudaSuccess);
  auto* const inside = static_cast<std::byte*>(mapping) + 4096;
  CHECK(api().HostRegister(mapping, bytes, 0) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(api().HostRegister(inside, 1, 0) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(api().HostUnregister(inside) == cudaErrorHostMemoryNotRegistered);
  auto* const counter = reinterpret_cast<std::uint32_t*>(inside);
  const cudaStream_t stream = make_stream();
  REQUIRE(launch(kAdd, Add{counter, 16, 5}, stream) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(counter[15] == 5);
  CHECK(api().HostUnregister(mapping) == cudaSuccess);
  CHECK(api().HostUnregister(mapping) == cudaErrorHostMemoryNotRegistered);
  munmap(mapping, bytes);
}

TEST_CASE("Copies go every way, and out of bounds no way", "[soft]") {
  const Machine machine;
  auto* const a = allocate<std::uint32_t>(100);
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  auto* const b = allocate<std::uint32_t>(100);
  std::vector<std::uint32_t> host(100);
  for (std::uint32_t i = 0; i < 100; ++i) host[i] = i;
  REQUIRE(api().Memcpy(a, host.data(), 400, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(api().Memcpy(b, a, 400, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(read(b, 100) == host);
  REQUIRE(api().Memset(b, 1, 200) == cudaSuccess);
  CHECK(read(b, 100)[49] == 0x01010101);
  CHECK(read(b, 100)[50] == 50);
  CHECK(api().Memcpy(a, host.data(), 401, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(api().Memcpy(host.data(), a + 1, 400, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(api().Memcpy(host.data(), host.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(api().Memcpy(a, host.data(), 4, static_cast<cudaMemcpyKind>(7)) == cudaErrorInvalidMemcpyDirection);
  CHECK(api().Memset(host.data(), 0, 4) == cudaErrorInvalidValue);
  CHECK(api().Memset(a + 50, 0, 201) == cudaErrorInvalidValue);
}

// The rules of "API synchronization behavior": code that relies on more would fail on a GPU.
TEST_CASE("Copies are as asynchronous as CUDA's", "[soft]") {
  const Machine machine;
  auto* const data = allocate<std::uint32_t>(64);
  auto* const words = allocate<std::uint32_t>(2);
  REQUIRE(api().Memset(words, 0, 8) == cudaSuccess);
  const cudaStream_t stream = make_stream();
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  REQUIRE(launch(kGate, Gate{words, 1, words + 1}, stream) == cudaSuccess);

  std::vector<std::uint32_t> source(64, 7);
  REQUIRE(api().MemcpyAsync(data, source.data(), 256, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  std::fill(source.begin(), source.end(), 8u);  // pageable: read already
  REQUIRE(api().MemsetAsync(data + 32, 0, 128, stream) == cudaSuccess);
  CHECK(api().StreamQuery(stream) == cudaErrorNotReady);
  CHECK(api().GetLastError() == cudaErrorNotReady);
  CHECK(data[0] == 0xDBDBDBDB);

  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  std::vector<std::uint32_t> back(64, 0);
  REQUIRE(api().MemcpyAsync(back.data(), data, 256, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(back[31] == 7);  // to pageable memory: done when it returns
  CHECK(back[32] == 0);
}

}  // namespace rondo::soft::testing
