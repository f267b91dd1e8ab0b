// SPDX-License-Identifier: Apache-2.0
// A site on a device, reached through the table of CUDA's runtime: a GPU or the soft runtime, it cannot tell.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/site.hpp"
#include "bench/statistics.hpp"
#include "comm/device/setup/device_cards.hpp"

namespace rondo::bench {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{512} << 20;  // far more than any cache
constexpr int kDeviceCopies = 11;

// The runtime, its failures as errors that say what was tried.
struct Runtime {
  const cuda::Api& api;
  void need(cudaError_t status, const char* what) const {
    if (status == cudaSuccess) return;
    api.GetLastError();  // not the next call's
    throw Error(ErrorCode::cuda,
                fmt::format("{}: {} ({})", what, api.GetErrorString(status), api.GetErrorName(status)));
  }
};

class Event {
 public:
  explicit Event(const Runtime& runtime) : runtime_(runtime) {
    runtime.need(runtime.api.EventCreateWithFlags(&event_, cudaEventDefault), "cannot make an event");
  }
  ~Event() { runtime_.api.EventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) {
    runtime_.need(runtime_.api.EventRecord(event_, stream), "cannot record an event");
  }
  void wait() { runtime_.need(runtime_.api.EventSynchronize(event_), "cannot wait for an event"); }
  double seconds_since(const Event& begin) const {
    float ms = 0;
    runtime_.need(runtime_.api.EventElapsedTime(&ms, begin.event_, event_), "cannot take the time between two events");
    return static_cast<double>(ms) / 1e3;
  }

 private:
  const Runtime& runtime_;
  cudaEvent_t event_{};
};

struct Took {
  double device_seconds = 0, host_seconds = 0;  // the host's until the calls have returned
};

Took time_calls(const Runtime& runtime, cudaStream_t stream, const std::function<void()>& calls) {
  Event begin(runtime), end(runtime);
  begin.record(stream);
  const auto called = std::chrono::steady_clock::now();
  calls();
  const std::chrono::duration<double> on_host = std::chrono::steady_clock::now() - called;
  end.record(stream);
  end.wait();
  return {end.seconds_since(begin), on_host.count()};
}

class EagerBatch : public Batch {
 public:
  EagerBatch(const Runtime& runtime, cudaStream_t stream, std::function<void()> calls)
      : runtime_(runtime), stream_(stream), calls_(std::move(calls)) {}
  double seconds() override { return (took_ = time_calls(runtime_, stream_, calls_)).device_seconds; }
  double host_seconds() const override { return took_.host_seconds; }

 private:
  const Runtime& runtime_;
  cudaStream_t stream_;
  std::function<void()> calls_;
  Took took_;
};

class GraphBatch : public Batch {
 public:
  GraphBatch(const Runtime& runtime, cudaStream_t stream, const std::function<void()>& calls, int replays)
      : runtime_(runtime), stream_(stream), replays_(replays) {
    const cuda::Api& api = runtime.api;
    runtime.need(api.StreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot begin to capture a graph");
    cudaGraph_t graph{};
    try {
      calls();
    } catch (...) {
      api.StreamEndCapture(stream, &graph);
      if (graph != nullptr) api.GraphDestroy(graph);
      throw;
    }
    runtime.need(api.StreamEndCapture(stream, &graph), "cannot capture the calls into a graph");
    const cudaError_t status = api.GraphInstantiate(&graph_, graph, 0);
    api.GraphDestroy(graph);
    runtime.need(status, "cannot instantiate the graph");
  }
  ~GraphBatch() override {
    runtime_.api.StreamSynchronize(stream_);
    runtime_.api.GraphExecDestroy(graph_);
  }
  double seconds() override {
    const auto replay = [this] {
      for (int i = 0; i < replays_; ++i)
        runtime_.need(runtime_.api.GraphLaunch(graph_, stream_), "cannot launch a graph");
    };
    return (took_ = time_calls(runtime_, stream_, replay)).device_seconds / replays_;
  }
  double host_seconds() const override { return took_.host_seconds / replays_; }

 private:
  const Runtime& runtime_;
  cudaStream_t stream_;
  int replays_;
  Took took_;
  cudaGraphExec_t graph_{};
};

// Never the default stream: that one waits for kernels of other ranks in this process, which may wait for us.
class DeviceSite : public Site {
 public:
  DeviceSite(const cuda::Api& api, Device::Kind kind, int index) : runtime_{api}, kind_(kind), index_(index) {
    runtime_.need(api.SetDevice(index), "cannot use the device");
    runtime_.need(api.StreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot make a stream");
  }
  ~DeviceSite() override { runtime_.api.StreamDestroy(stream_); }
  DeviceSite(const DeviceSite&) = delete;
  DeviceSite& operator=(const DeviceSite&) = delete;

  Stream stream() const override { return stream_; }
  void drain() override { runtime_.need(runtime_.api.StreamSynchronize(stream_), "cannot wait for the stream"); }
  void fill(std::byte* to, std::byte value, std::size_t bytes) override {
    if (bytes == 0) return;
    runtime_.need(runtime_.api.MemsetAsync(to, std::to_integer<int>(value), bytes, stream_), "cannot fill memory");
    drain();
  }
  void write(std::byte* to, std::size_t bytes, const std::function<void(std::byte*)>& make) override {
    scratch_.resize(bytes);
    make(scratch_.data());
    copy(to, scratch_.data(), bytes, cudaMemcpyHostToDevice);
  }
  const std::byte* read(const std::byte* from, std::size_t bytes) override {
    scratch_.resize(bytes);
    copy(scratch_.data(), from, bytes, cudaMemcpyDeviceToHost);
    return scratch_.data();
  }
  std::unique_ptr<Batch> batch(std::function<void()> calls, int replays) override {
    if (replays > 0) return std::make_unique<GraphBatch>(runtime_, stream_, calls, replays);
    return std::make_unique<EagerBatch>(runtime_, stream_, std::move(calls));
  }
  std::size_t cache_bytes() const override;
  nlohmann::json describe() const override;
  double copy_gbps() override;

 private:
  std::byte* allocate_bytes(std::size_t bytes) override {
    void* memory = nullptr;
    runtime_.need(runtime_.api.Malloc(&memory, std::max<std::size_t>(bytes, 1)),
                  "cannot allocate the buffers; choose a smaller -e");
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory) override { runtime_.api.Free(memory); }
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    runtime_.need(runtime_.api.MemcpyAsync(to, from, bytes, kind, stream_), "cannot copy");
    drain();
  }
  int attribute(cudaDeviceAttr which) const {
    int value = 0;
    return runtime_.api.DeviceGetAttribute(&value, which, index_) == cudaSuccess ? value : 0;
  }

  Runtime runtime_;
  Device::Kind kind_;
  int index_;
  cudaStream_t stream_{};
  std::vector<std::byte> scratch_;
};

// The soft runtime's cache would be the host's; two sets are enough to see that sets are not mixed up.
std::size_t DeviceSite::cache_bytes() const {
  return kind_ == Device::Kind::sim ? 1 : static_cast<std::size_t>(std::max(0, attribute(cudaDevAttrL2CacheSize)));
}

nlohmann::json DeviceSite::describe() const {
  char name[256] = {};
  unsigned char uuid[16] = {};
  int driver = 0, runtime = 0;
  runtime_.need(runtime_.api.DeviceName(name, static_cast<int>(sizeof name), index_), "cannot tell the device's name");
  runtime_.need(runtime_.api.DeviceUuid(&uuid, index_), "cannot tell the device's UUID");
  runtime_.need(runtime_.api.DriverGetVersion(&driver), "cannot tell the driver's version");
  runtime_.need(runtime_.api.RuntimeGetVersion(&runtime), "cannot tell the runtime's version");
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  return {{"index", index_},
          {"name", name},
          {"uuid", comm::device::text_of(std::to_array(uuid))},
          {"driver_cuda", version(driver)},
          {"runtime_cuda", version(runtime)},
          {"multiprocessors", attribute(cudaDevAttrMultiProcessorCount)},
          {"l2_bytes", attribute(cudaDevAttrL2CacheSize)}};
}

double DeviceSite::copy_gbps() {
  if (kind_ == Device::Kind::sim) return 0;
  std::size_t free_bytes = 0, total_bytes = 0;
  runtime_.need(runtime_.api.MemGetInfo(&free_bytes, &total_bytes), "cannot tell how much memory is free");
  const std::size_t bytes = std::min(kCopyBytes, free_bytes / 8);
  const Memory from = allocate(bytes), to = allocate(bytes);
  fill(from.get(), std::byte{1}, bytes);
  std::vector<double> gbps;
  for (int i = 0; i <= kDeviceCopies; ++i) {
    const Took took = time_calls(runtime_, stream_, [&] {
      runtime_.need(runtime_.api.MemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream_),
                    "cannot copy in device memory");
    });
    if (i > 0) gbps.push_back(2 * static_cast<double>(bytes) / took.device_seconds / 1e9);  // the first one warms up
  }
  return statistics_of(gbps).median;
}

}  // namespace

std::unique_ptr<Site> make_device_site(const Device& device) {
  return std::make_unique<DeviceSite>(comm::device::api_of(device.kind), device.kind, device.index);
}

}  // namespace rondo::bench
