// SPDX-License-Identifier: Apache-2.0
// Launches that may begin before what comes before them on their stream has ended.
#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {
namespace {

using Clock = std::chrono::steady_clock;

bool becomes_one(const std::uint32_t* word) {
  const auto until = Clock::now() + std::chrono::seconds(30);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0 && Clock::now() < until) std::this_thread::yield();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) == 1;
}

// A gate, and a kernel behind it: both are on the stream before the first begins.
struct Words {
  std::uint32_t *start = zeros(1), *gate = zeros(1), *passed = zeros(3), *began = zeros(1), *sum = zeros(1);

  void open(std::uint32_t* word) const { __atomic_store_n(word, 1u, __ATOMIC_RELEASE); }
  Gate first() const { return {start, 1, passed + 1}; }
  Gate before() const { return {gate, 1, passed}; }
  Follow follow() const { return {began, passed, sum}; }
};

}  // namespace

TEST_CASE("An early launch begins beside a kernel that lets it, and waits for its end", "[soft]") {
  const Machine machine;
  const cudaStream_t stream = make_stream();
  const Words words;
  const bool in_graph = GENERATE(false, true);
  REQUIRE(launch(kGate, words.first(), stream) == cudaSuccess);
  if (in_graph) REQUIRE(api().StreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(launch(kOpenGate, words.before(), stream) == cudaSuccess);
  REQUIRE(launch_early(kFollow, words.follow(), stream) == cudaSuccess);
  if (in_graph) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    REQUIRE(api().StreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(api().GraphInstantiate(&runnable, graph, 0) == cudaSuccess);
    REQUIRE(api().GraphLaunch(runnable, stream) == cudaSuccess);
  }
  words.open(words.start);
  CHECK(becomes_one(words.began));
  CHECK(*words.sum == 0);
  words.open(words.gate);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(*words.sum == 2);
}

// The kernel before it looks, when all is on the stream, whether anybody has begun.
TEST_CASE("A launch does not begin early where nobody lets it, nor behind an event or a copy", "[soft]") {
  const Machine machine;
  const cudaStream_t stream = make_stream(), other = make_stream();
  const Words words;
  const int why = GENERATE(0, 1, 2, 3, 4);
  REQUIRE(launch(kGate, words.first(), stream) == cudaSuccess);
  REQUIRE(launch(why == 0 ? kGate : kOpenGate, words.before(), stream) == cudaSuccess);
  const cudaEvent_t event = make_event();
  if (why == 1) {
    REQUIRE(launch(kGate, Gate{words.gate, 1, words.passed + 2}, other) == cudaSuccess);
    REQUIRE(api().EventRecord(event, other) == cudaSuccess);
    REQUIRE(api().StreamWaitEvent(stream, event, 0) == cudaSuccess);
  }
  if (why == 2) REQUIRE(api().MemsetAsync(words.sum, 7, 4, stream) == cudaSuccess);
  const auto launch_it = [&] {
    return why == 3 ? launch(kFollow, words.follow(), stream)
                    : launch_early(kFollow, words.follow(), stream, why == 4 ? 0 : 1);
  };
  REQUIRE(launch_it() == cudaSuccess);
  words.open(words.start);
  const auto* const first_passed = words.passed + 1;
  CHECK(becomes_one(first_passed));
  CHECK(*words.began == 0);
  words.open(words.gate);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(*words.began == 1);
  CHECK(*words.sum == 2);
}

TEST_CASE("A kernel that uses memory before it has waited fails, early or not in fact", "[soft]") {
  Settings settings;
  settings.report = [](const char*) {};
  const Machine machine(settings);
  const cudaStream_t stream = make_stream();
  auto* const data = zeros(1);
  REQUIRE(launch_early(kAdd, Add{data, 1, 1}, stream, 0) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  CHECK(*data == 1);
  const cudaError_t code = launch_early(kAdd, Add{data, 1, 1}, stream);
  CHECK((code == cudaSuccess || code == cudaErrorLaunchFailure));  // a call tells a failure that it meets
  CHECK(api().StreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK(*data == 1);
}

TEST_CASE("Attributes that nobody knows are refused, and early launches by devices that have none", "[soft]") {
  Settings settings;
  settings.architecture = 80;
  const Machine machine(settings);
  const cudaStream_t stream = make_stream();
  const Words words;
  CHECK(launch_early(kFollow, words.follow(), stream) == cudaErrorNotSupported);
  CHECK(launch_early(kFollow, words.follow(), stream, 0) == cudaSuccess);
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  Follow argument = words.follow();
  void* arguments[] = {&argument};
  attribute.id = static_cast<cudaLaunchAttributeID>(8);
  CHECK(api().LaunchKernelExC(&config, &kFollow, arguments) == cudaErrorInvalidValue);
  attribute.id = cudaLaunchAttributeMemSyncDomain;
  attribute.val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  CHECK(api().LaunchKernelExC(&config, &kFollow, arguments) == cudaSuccess);
  config.attrs = nullptr;
  CHECK(api().LaunchKernelExC(&config, &kFollow, arguments) == cudaErrorInvalidValue);
  CHECK(api().LaunchKernelExC(nullptr, &kFollow, arguments) == cudaErrorInvalidValue);
  REQUIRE(api().StreamSynchronize(stream) == cudaSuccess);
  int domains = 0, major = 0;
  CHECK(api().DeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, 0) == cudaSuccess);
  CHECK(api().DeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  CHECK((domains == 1 && major == 8));
}

}  // namespace rondo::soft::testing
