// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {
namespace {

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  REQUIRE(api().StreamBeginCapture(stream, mode) == cudaSuccess);
}
cudaGraph_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  REQUIRE(api().StreamEndCapture(stream, &graph) == cudaSuccess);
  return graph;
}
cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  REQUIRE(api().GraphInstantiate(&executable, graph, 0) == cudaSuccess);
  return executable;
}
cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  REQUIRE(api().StreamIsCapturing(stream, &status) == cudaSuccess);
  return status;
}
// The capture was spoilt: ending it says so and gives no graph.
void check_spoilt(cudaStream_t stream) {
  CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(stream);
  CHECK(api().StreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
}

}  // namespace

TEST_CASE("A captured graph does its work at every launch, and not before", "[soft]") {
  const Machine machine;
  auto* const data = zeros(64);
  const cudaStream_t stream = make_stream();
  const cudaEvent_t event = make_event(cudaEventDisableTiming);
  begin(stream);
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  REQUIRE(launch(kAdd, Add{data, 32, 1}, stream) == cudaSuccess);
  REQUIRE(api().EventRecord(event, stream) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(stream, event, 0) == cudaSuccess);
  REQUIRE(api().MemcpyAsync(data + 32, data, 128, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  REQUIRE(api().MemsetAsync(data + 63, 1, 4, stream) == cudaSuccess);
  const cudaGraph_t graph = end(stream);
  CHECK(read(data, 64) == std::vector<std::uint32_t>(64, 0));
  const cudaGraphExec_t executable = instantiate(graph);
  REQUIRE(api().GraphDestroy(graph) == cudaSuccess);
  CHECK(api().GraphDestroy(graph) == cudaErrorInvalidValue);
  for (int i = 0; i < 100; ++i) REQUIRE(api().GraphLaunch(executable, stream) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  std::vector<std::uint32_t> expected(64, 100);
  expected[63] = 0x01010101;
  CHECK(read(data, 64) == expected);
  const cudaStream_t other = make_stream();  // launches of one graph do not overlap, in whatever stream
  for (int i = 0; i < 10; ++i) REQUIRE(api().GraphLaunch(executable, i % 2 == 0 ? stream : other) == cudaSuccess);
  REQUIRE(api().GraphExecDestroy(executable) == cudaSuccess);  // what was launched goes on
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  expected.assign(64, 110);
  expected[63] = 0x01010101;
  CHECK(read(data, 64) == expected);
  CHECK(api().GraphLaunch(executable, stream) == cudaErrorInvalidValue);
}

// Two branches whose kernels wait for each other: in one line they would never end.
TEST_CASE("Streams that join a capture run side by side at each launch", "[soft]") {
  const Machine machine;
  auto* const words = zeros(5);
  const cudaStream_t origin = make_stream();
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  const cudaStream_t other = make_stream();
  const cudaEvent_t joined = make_event();
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  const cudaEvent_t fork = make_event();
  begin(origin);
  REQUIRE(api().MemsetAsync(words, 0, 8, origin) == cudaSuccess);
  REQUIRE(api().EventRecord(fork, origin) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(other, fork, 0) == cudaSuccess);
  CHECK(status_of(other) == cudaStreamCaptureStatusActive);
  REQUIRE(launch(kGate, Gate{words + 1, 1, words}, origin) == cudaSuccess);
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  REQUIRE(launch(kGate, Gate{words + 4, 0, words + 1}, other) == cudaSuccess);
  REQUIRE(launch(kGate, Gate{words, 1, words + 2}, other) == cudaSuccess);
  REQUIRE(api().EventRecord(joined, other) == cudaSuccess);
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(origin, joined, 0) == cudaSuccess);
  REQUIRE(launch(kAdd, Add{words + 3, 1, 1}, origin) == cudaSuccess);
  const cudaGraph_t graph = end(origin);
  CHECK(status_of(other) == cudaStreamCaptureStatusNone);
  const cudaGraphExec_t executable = instantiate(graph);
  for (int i = 0; i < 20; ++i) REQUIRE(api().GraphLaunch(executable, origin) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(origin) == cudaSuccess);
  CHECK(read(words, 4) == std::vector<std::uint32_t>{1, 1, 1, 20});
  REQUIRE(api().GraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("Launches of a graph follow each other in whatever streams, each to the end of all branches", "[soft]") {
  const Machine machine;
  auto* const words = zeros(3);
  const cudaStream_t origin = make_stream();
  const cudaStream_t other = make_stream();
  const cudaEvent_t fork = make_event();
  const cudaEvent_t join = make_event();
  begin(origin);
  REQUIRE(api().EventRecord(fork, origin) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(other, fork, 0) == cudaSuccess);
  REQUIRE(launch(kDawdle, Dawdle{2'000'000, words, words + 1, words + 2}, other) == cudaSuccess);
  REQUIRE(api().EventRecord(join, other) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(origin, join, 0) == cudaSuccess);
  const cudaGraph_t branched = end(origin);
  begin(origin);
  REQUIRE(launch(kDawdle, Dawdle{2'000'000, words, words + 1, words + 2}, origin) == cudaSuccess);
  const cudaGraph_t straight = end(origin);
  const cudaGraphExec_t executable = instantiate(branched);
  REQUIRE(api().GraphLaunch(executable, origin) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(origin) == cudaSuccess);
  CHECK(read(words, 3) == std::vector<std::uint32_t>{0, 0, 1});
  const cudaGraphExec_t again = instantiate(straight);
  for (int i = 0; i < 4; ++i) REQUIRE(api().GraphLaunch(again, i % 2 == 0 ? origin : other) == cudaSuccess);
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  CHECK(read(words, 2) == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("A stream that was not joined again spoils the capture", "[soft]") {
  const Machine machine;
  auto* const data = zeros(1);
  const cudaStream_t origin = make_stream();
  const cudaStream_t other = make_stream();
  const cudaEvent_t fork = make_event();
  begin(origin);
  REQUIRE(api().EventRecord(fork, origin) == cudaSuccess);
  REQUIRE(api().StreamWaitEvent(other, fork, 0) == cudaSuccess);
  REQUIRE(launch(kAdd, Add{data, 1, 1}, other) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(api().StreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(api().StreamEndCapture(origin, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  CHECK(status_of(other) == cudaStreamCaptureStatusNone);
  CHECK(api().EventQuery(fork) == cudaErrorCapturedEvent);
}

TEST_CASE("What cannot be captured is refused and spoils the capture", "[soft]") {
  const Machine machine;
  auto* const data = zeros(1);
  const cudaStream_t stream = make_stream();
  const cudaStream_t other = make_stream();
  const cudaEvent_t event = make_event();
  REQUIRE(api().EventRecord(event, other) == cudaSuccess);
  begin(stream, cudaStreamCaptureModeRelaxed);
  CHECK(api().StreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaErrorIllegalState);

  SECTION("synchronising the stream") { CHECK(api().StreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported); }
  SECTION("asking the stream") { CHECK(api().StreamQuery(stream) == cudaErrorStreamCaptureUnsupported); }
  SECTION("synchronising the device") { CHECK(api().DeviceSynchronize() == cudaErrorStreamCaptureUnsupported); }
  SECTION("destroying the stream") { CHECK(api().StreamDestroy(stream) == cudaErrorStreamCaptureUnsupported); }
  SECTION("waiting for work that is not captured") {
    CHECK(api().StreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
  }
  SECTION("asking for an event recorded in it") {
    REQUIRE(api().EventRecord(event, stream) == cudaSuccess);
    CHECK(api().EventQuery(event) == cudaErrorCapturedEvent);
  }
  SECTION("waiting for an event recorded in it") {
    REQUIRE(api().EventRecord(event, stream) == cudaSuccess);
    CHECK(api().EventSynchronize(event) == cudaErrorCapturedEvent);
  }
  SECTION("the default stream coming after it") {
    REQUIRE(api().EventRecord(event, stream) == cudaSuccess);
    CHECK(api().StreamWaitEvent(nullptr, event, 0) == cudaErrorStreamCaptureImplicit);
  }
  SECTION("another capture coming after it") {
    begin(other, cudaStreamCaptureModeRelaxed);
    REQUIRE(api().EventRecord(event, stream) == cudaSuccess);
    CHECK(api().StreamWaitEvent(other, event, 0) == cudaErrorStreamCaptureMerge);
    check_spoilt(other);
  }
  CHECK(launch(kAdd, Add{data, 1, 1}, stream) == cudaErrorStreamCaptureInvalidated);
  check_spoilt(stream);
  cudaGraph_t graph = nullptr;
  CHECK(api().StreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  CHECK(api().StreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) == cudaErrorStreamCaptureUnsupported);
}

TEST_CASE("The default stream cannot be used while a blocking stream captures", "[soft]") {
  const Machine machine;
  auto* const data = zeros(1);
  const cudaStream_t stream = make_stream(cudaStreamDefault);
  begin(stream, cudaStreamCaptureModeRelaxed);
  CHECK(launch(kAdd, Add{data, 1, 1}, nullptr) == cudaErrorStreamCaptureImplicit);
  check_spoilt(stream);
  begin(stream, cudaStreamCaptureModeRelaxed);
  REQUIRE(api().SetDevice(1) == cudaSuccess);  // another device's is another matter
  auto* const there = allocate<std::uint32_t>(1);
  CHECK(launch(kAdd, Add{there, 1, 1}, nullptr) == cudaSuccess);
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  REQUIRE(api().GraphDestroy(end(stream)) == cudaSuccess);
}

TEST_CASE("Unsafe calls are refused as the capture's mode says", "[soft]") {
  const Machine machine;
  const cudaStream_t stream = make_stream();
  const cudaEvent_t event = make_event();
  REQUIRE(api().EventRecord(event, make_stream()) == cudaSuccess);
  const auto allocates = [] {
    void* pointer = nullptr;
    return api().Malloc(&pointer, 4);
  };
  const auto elsewhere = [](auto&& call) {
    cudaError_t code{};
    std::thread([&] { code = call(); }).join();
    return code;
  };
  SECTION("global: to all threads") {
    begin(stream, cudaStreamCaptureModeGlobal);
    CHECK(elsewhere(allocates) == cudaErrorStreamCaptureUnsupported);
    CHECK(elsewhere([&] { return api().EventQuery(event); }) == cudaErrorStreamCaptureUnsupported);
    check_spoilt(stream);
  }
  SECTION("thread-local: to the one that captures") {
    begin(stream, cudaStreamCaptureModeThreadLocal);
    CHECK(elsewhere(allocates) == cudaSuccess);
    CHECK(allocates() == cudaErrorStreamCaptureUnsupported);
    check_spoilt(stream);
  }
  SECTION("relaxed: to none") {
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(allocates() == cudaSuccess);
    CHECK(elsewhere([&] { return api().EventSynchronize(event); }) == cudaSuccess);
    REQUIRE(api().GraphDestroy(end(stream)) == cudaSuccess);
  }
  SECTION("a capture is ended by the thread that began it, unless relaxed") {
    cudaGraph_t graph = nullptr;
    begin(stream, cudaStreamCaptureModeGlobal);
    CHECK(elsewhere([&] { return api().StreamEndCapture(stream, &graph); }) == cudaErrorStreamCaptureWrongThread);
    REQUIRE(api().GraphDestroy(end(stream)) == cudaSuccess);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(elsewhere([&] { return api().StreamEndCapture(stream, &graph); }) == cudaSuccess);
    REQUIRE(api().GraphDestroy(graph) == cudaSuccess);
  }
}

TEST_CASE("A user object lives as long as anything that retains it", "[soft]") {
  const Machine machine;
  std::atomic<int> destroyed{0};
  const auto destroy = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  const cudaStream_t stream = make_stream();
  auto* const words = zeros(2);
  cudaUserObject_t object = nullptr;
  CHECK(api().UserObjectCreate(&object, &destroyed, destroy, 0, cudaUserObjectNoDestructorSync) ==
        cudaErrorInvalidValue);
  REQUIRE(api().UserObjectCreate(&object, &destroyed, destroy, 2, cudaUserObjectNoDestructorSync) == cudaSuccess);
  CHECK(api().StreamRetainInCapture(stream, object) == cudaErrorIllegalState);  // nothing is captured
  begin(stream);
  REQUIRE(launch(kGate, Gate{words, 1, words + 1}, stream) == cudaSuccess);
  REQUIRE(api().StreamRetainInCapture(stream, object) == cudaSuccess);
  const cudaGraph_t graph = end(stream);
  CHECK(api().UserObjectRelease(object, 3) == cudaErrorInvalidValue);
  REQUIRE(api().UserObjectRelease(object, 1) == cudaSuccess);
  REQUIRE(api().UserObjectRelease(object, 1) == cudaSuccess);
  CHECK(api().UserObjectRelease(object, 1) == cudaErrorInvalidResourceHandle);
  const cudaGraphExec_t executable = instantiate(graph);
  REQUIRE(api().GraphDestroy(graph) == cudaSuccess);
  REQUIRE(api().GraphLaunch(executable, stream) == cudaSuccess);
  CHECK(destroyed == 0);
  REQUIRE(api().GraphExecDestroy(executable) == cudaSuccess);
  CHECK(api().StreamQuery(stream) == cudaErrorNotReady);
  CHECK(destroyed == 0);  // the launch is still running
  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(destroyed == 1);
}

TEST_CASE("A capture that fails lets its user objects go", "[soft]") {
  const Machine machine;
  std::atomic<int> destroyed{0};
  const auto destroy = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  const cudaStream_t stream = make_stream();
  cudaUserObject_t object = nullptr;
  REQUIRE(api().UserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync) == cudaSuccess);
  begin(stream);
  REQUIRE(api().StreamRetainInCapture(stream, object) == cudaSuccess);
  REQUIRE(api().UserObjectRelease(object, 1) == cudaSuccess);
  CHECK(api().StreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(destroyed == 0);
  check_spoilt(stream);
  CHECK(destroyed == 1);
}

}  // namespace rondo::soft::testing
