// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {
namespace {

std::atomic<int> g_reports{0};
void count_report(const char* sentence) {
  if (sentence != nullptr && sentence[0] != 0) ++g_reports;
}

}  // namespace

TEST_CASE("A kernel runs on the stream, with the argument of the launch", "[soft]") {
  const Machine machine;
  const cudaStream_t stream = make_stream();
  auto* const data = allocate<std::uint32_t>(1000);
  REQUIRE(api().MemsetAsync(data, 0, 4000, stream) == cudaSuccess);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    Add add{data, 1000, round};
    void* arguments[] = {&add};
    REQUIRE(api().LaunchKernel(&kAdd, dim3(3), dim3(64), arguments, 0, stream) == cudaSuccess);
    add.value = 100;  // copied at the launch
  }
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(read(data, 1000) == std::vector<std::uint32_t>(1000, 6));
}

TEST_CASE("Launches that cannot be are refused", "[soft]") {
  const Machine machine;
  const cudaStream_t stream = make_stream();
  auto* const data = allocate<std::uint32_t>(1);
  const Add add{data, 1, 1};
  CHECK(launch(kAdd, add, stream, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(kAdd, add, stream, 1, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(kAdd, add, stream, 1, 1025) == cudaErrorInvalidConfiguration);
  CHECK(api().GetLastError() == cudaErrorInvalidConfiguration);
  CHECK(api().GetLastError() == cudaSuccess);
  Kernel other = kAdd;
  other.magic = 1;
  CHECK(launch(other, add, stream) == cudaErrorInvalidDeviceFunction);
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  CHECK(launch(kAdd, add, stream) == cudaErrorInvalidResourceHandle);  // a stream of device 0
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  REQUIRE(api().StreamDestroy(stream) == cudaSuccess);
  CHECK(launch(kAdd, add, stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("A kernel's failure is its device's last word, and is reported once", "[soft]") {
  g_reports = 0;
  Settings settings;
  settings.report = &count_report;
  const Machine machine(settings);
  const cudaStream_t stream = make_stream();
  auto* const data = allocate<std::uint32_t>(1);
  auto* const gate = zeros(2);  // shut until all is launched: a call tells a failure that it meets
  REQUIRE(launch(kGate, Gate{gate, 1, gate + 1}, stream) == cudaSuccess);
  REQUIRE(launch(kTrap, Nothing{}, stream) == cudaSuccess);
  REQUIRE(launch(kAdd, Add{data, 1, 1}, stream) == cudaSuccess);
  __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
  CHECK(api().StreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK(api().GetLastError() == cudaErrorLaunchFailure);
  CHECK(api().GetLastError() == cudaErrorLaunchFailure);  // for good
  void* pointer = nullptr;
  CHECK(api().Malloc(&pointer, 4) == cudaErrorLaunchFailure);
  CHECK(api().Free(data) == cudaErrorLaunchFailure);
  CHECK(*data == 0xDBDBDBDB);  // what followed was not run
  CHECK(g_reports == 1);
  REQUIRE(api().SetDevice(1) == cudaSuccess);  // another device goes on
  CHECK(api().Malloc(&pointer, 4) == cudaSuccess);
}

TEST_CASE("A device loads and stores words of host memory and exchanges none", "[soft]") {
  g_reports = 0;
  Settings settings;
  settings.report = &count_report;
  const Machine machine(settings);
  const cudaStream_t stream = make_stream();
  auto* const words = zeros(2);
  void* pinned = nullptr;
  REQUIRE(api().HostAlloc(&pinned, 2 * sizeof *words, cudaHostAllocMapped) == cudaSuccess);
  auto* const host = static_cast<std::uint32_t*>(pinned);
  host[0] = host[1] = 0;
  REQUIRE(launch(kDawdle, Dawdle{0, words, host, host + 1}, stream) == cudaSuccess);
  CHECK(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(host[1] == 1);
  auto* const gate = zeros(2);  // shut until it is launched: the launch tells a failure that it meets
  REQUIRE(launch(kGate, Gate{gate, 1, gate + 1}, stream) == cudaSuccess);
  REQUIRE(launch(kDawdle, Dawdle{0, host, words, words + 1}, stream) == cudaSuccess);
  __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
  CHECK(api().StreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK(host[0] == 0);
  CHECK(g_reports == 1);
}

}  // namespace rondo::soft::testing
