// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {
namespace {

// Kernels that wait until a test opens them.
class Gates {
 public:
  explicit Gates(unsigned count = 8) : words_(zeros(2 * count)), count_(count) {}
  void close(unsigned gate, cudaStream_t stream) {
    REQUIRE(launch(kGate, Gate{words_ + gate, 1, words_ + count_ + gate}, stream) == cudaSuccess);
  }
  void open(unsigned gate) { __atomic_store_n(words_ + gate, 1u, __ATOMIC_RELEASE); }
  // Time in which what may run does.
  void dawdle() {
    const Dawdle argument{5'000'000, others_, others_ + 1, others_ + 2};
    REQUIRE(launch(kDawdle, argument, stream_) == cudaSuccess);
    REQUIRE(api().StreamSynchronize(stream_) == cudaSuccess);
  }
  bool passed(unsigned gate) { return __atomic_load_n(words_ + count_ + gate, __ATOMIC_ACQUIRE) == 1; }

 private:
  std::uint32_t* words_;
  unsigned count_;
  std::uint32_t* others_ = zeros(3);
  cudaStream_t stream_ = make_stream();
};

}  // namespace

TEST_CASE("Streams run side by side, each in order", "[soft]") {
  const Machine machine;
  Gates gates;
  const cudaStream_t a = make_stream();
  const cudaStream_t b = make_stream();
  gates.close(0, a);
  gates.close(1, a);
  gates.close(2, b);
  gates.open(2);
  REQUIRE(api().StreamSynchronize(b) == cudaSuccess);
  gates.open(1);
  CHECK(api().StreamQuery(a) == cudaErrorNotReady);
  CHECK_FALSE(gates.passed(1));  // open, but behind 0
  gates.open(0);
  REQUIRE(api().StreamSynchronize(a) == cudaSuccess);
  CHECK(gates.passed(1));
  CHECK(api().StreamQuery(a) == cudaSuccess);
}

TEST_CASE("The default stream keeps order with blocking streams alone", "[soft]") {
  const Machine machine;
  Gates gates;
  const cudaStream_t blocking = make_stream(cudaStreamDefault);
  const cudaStream_t another = make_stream(cudaStreamDefault);
  const cudaStream_t free_stream = make_stream(cudaStreamNonBlocking);
  gates.close(0, blocking);
  gates.open(1);
  gates.close(1, nullptr);  // behind 0
  gates.open(2);
  gates.close(2, another);  // behind 1
  gates.dawdle();
  gates.open(3);
  gates.close(3, free_stream);  // behind nothing
  REQUIRE(api().StreamSynchronize(free_stream) == cudaSuccess);
  CHECK(api().StreamQuery(nullptr) == cudaErrorNotReady);
  CHECK_FALSE(gates.passed(1));
  CHECK_FALSE(gates.passed(2));
  gates.open(0);
  REQUIRE(api().StreamSynchronize(nullptr) == cudaSuccess);
  CHECK(gates.passed(1));
  REQUIRE(api().StreamSynchronize(cudaStreamLegacy) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(another) == cudaSuccess);
  CHECK(gates.passed(2));
}

TEST_CASE("A stream destroyed with work left does it", "[soft]") {
  const Machine machine;
  Gates gates;
  const cudaStream_t stream = make_stream();
  gates.close(0, stream);
  gates.close(1, stream);
  REQUIRE(api().StreamDestroy(stream) == cudaSuccess);
  CHECK(api().StreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(api().StreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  gates.open(0);
  gates.open(1);
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  CHECK(gates.passed(1));
}

TEST_CASE("A stream waits for what an event was recorded after, on any device", "[soft]") {
  const Machine machine;
  Gates gates;
  const cudaStream_t a = make_stream();
  const cudaEvent_t event = make_event();
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  const cudaStream_t b = make_stream();
  CHECK(api().EventRecord(event, b) == cudaErrorInvalidResourceHandle);  // another device's
  REQUIRE(api().StreamWaitEvent(b, event, 0) == cudaSuccess);            // never recorded: nothing to wait for
  REQUIRE(api().StreamSynchronize(b) == cudaSuccess);
  REQUIRE(api().SetDevice(0) == cudaSuccess);

  gates.close(0, a);
  REQUIRE(api().EventRecord(event, a) == cudaSuccess);
  gates.close(1, a);
  CHECK(api().EventQuery(event) == cudaErrorNotReady);
  REQUIRE(api().StreamWaitEvent(b, event, 0) == cudaSuccess);
  REQUIRE(api().EventRecord(event, a) == cudaSuccess);  // again: b waits for the first record
  REQUIRE(api().EventDestroy(event) == cudaSuccess);    // or even without the event
  CHECK(api().EventQuery(event) == cudaErrorInvalidResourceHandle);
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  gates.open(2);
  gates.close(2, b);
  CHECK(api().StreamQuery(b) == cudaErrorNotReady);
  gates.open(0);
  REQUIRE(api().StreamSynchronize(b) == cudaSuccess);
  CHECK(gates.passed(2));
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  CHECK(api().StreamQuery(a) == cudaErrorNotReady);
  gates.open(1);
  REQUIRE(api().StreamSynchronize(a) == cudaSuccess);
}

TEST_CASE("Events tell the time between them", "[soft]") {
  const Machine machine;
  Gates gates;
  const cudaStream_t stream = make_stream();
  const cudaEvent_t begin = make_event();
  const cudaEvent_t middle = make_event();
  const cudaEvent_t end = make_event();
  float first = -1, second = -1, both = -1;
  CHECK(api().EventElapsedTime(&first, begin, end) == cudaErrorInvalidResourceHandle);  // not recorded
  REQUIRE(api().EventRecord(begin, stream) == cudaSuccess);
  gates.close(0, stream);
  REQUIRE(api().EventRecord(middle, stream) == cudaSuccess);
  REQUIRE(api().EventRecord(end, stream) == cudaSuccess);
  CHECK(api().EventElapsedTime(&first, begin, end) == cudaErrorNotReady);
  REQUIRE(api().EventSynchronize(begin) == cudaSuccess);
  const auto before = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - before < std::chrono::milliseconds(3)) {
  }
  gates.open(0);
  REQUIRE(api().EventSynchronize(end) == cudaSuccess);
  REQUIRE(api().EventElapsedTime(&first, begin, middle) == cudaSuccess);
  REQUIRE(api().EventElapsedTime(&second, middle, end) == cudaSuccess);
  REQUIRE(api().EventElapsedTime(&both, begin, end) == cudaSuccess);
  CHECK(first >= 2.9F);
  CHECK(second >= 0);
  CHECK(both == Approx(first + second));
  const cudaEvent_t plain = make_event(cudaEventDisableTiming);
  REQUIRE(api().EventRecord(plain, stream) == cudaSuccess);
  REQUIRE(api().EventSynchronize(plain) == cudaSuccess);
  CHECK(api().EventElapsedTime(&first, plain, end) == cudaErrorInvalidResourceHandle);
  cudaEvent_t other = nullptr;
  CHECK(api().EventCreateWithFlags(&other, 64) == cudaErrorInvalidValue);
}

TEST_CASE("Calls of many threads do not disturb each other", "[soft]") {
  const Machine machine;
  constexpr int kThreads = 4, kRounds = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {  // no REQUIRE here: Catch2 is not for threads
      const auto expect = [&](cudaError_t code) { wrong += code != cudaSuccess; };
      expect(api().SetDevice(index % 2));
      cudaStream_t stream = nullptr;
      expect(api().StreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      for (int round = 0; round < kRounds; ++round) {
        void* pointer = nullptr;
        cudaEvent_t event = nullptr;
        expect(api().Malloc(&pointer, 256));
        expect(api().EventCreateWithFlags(&event, cudaEventDisableTiming));
        expect(api().MemsetAsync(pointer, 0, 256, stream));
        expect(launch(kAdd, Add{static_cast<std::uint32_t*>(pointer), 64, 3}, stream));
        expect(api().EventRecord(event, stream));
        expect(api().EventSynchronize(event));
        std::uint32_t last = 0;
        expect(api().Memcpy(&last, static_cast<std::uint32_t*>(pointer) + 63, 4, cudaMemcpyDeviceToHost));
        wrong += last != 3;
        expect(api().EventDestroy(event));
        expect(api().Free(pointer));
      }
      expect(api().StreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("A reset ends kernels that would wait for ever", "[soft]") {
  const Machine machine;
  Gates gates;
  gates.close(0, nullptr);
  const cudaStream_t stream = make_stream();
  gates.close(1, stream);
  REQUIRE(api().StreamWaitEvent(stream, make_event(), 0) == cudaSuccess);
  reset();
  CHECK(api().StreamQuery(stream) == cudaErrorInvalidResourceHandle);
  CHECK(api().DeviceSynchronize() == cudaSuccess);
}

}  // namespace rondo::soft::testing
