// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/on_streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace rondo::gpu_check {
namespace {

// Shared by the streams' threads: each writes its own element between two meetings.
struct Meeting {
  explicit Meeting(int streams) : us(static_cast<std::size_t>(streams)), barrier(streams) {}
  std::vector<double> us;
  std::barrier<> barrier;
};

class Caller {
 public:
  Caller(const Api& api, int index, const Batches& batches, const std::function<void(int, cudaStream_t)>& enqueue,
         Meeting& meeting)
      : api_(api), index_(index), batches_(batches), enqueue_(enqueue), meeting_(meeting) {
    check(api_, api_.SetDevice(0), "SetDevice");
    check(api_, api_.StreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "StreamCreateWithFlags");
    check(api_, api_.EventCreateWithFlags(&begin_, 0), "EventCreateWithFlags");
    check(api_, api_.EventCreateWithFlags(&end_, 0), "EventCreateWithFlags");
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    if (graph_ != nullptr) api_.GraphExecDestroy(graph_);
    api_.EventDestroy(end_);
    api_.EventDestroy(begin_);
    api_.StreamDestroy(stream_);
  }

  // What the driver sets up, it sets up while no call waits for another stream's.
  void warm_up() {
    meeting_.barrier.arrive_and_wait();
    enqueue_(index_, stream_);
    drain();
    meeting_.barrier.arrive_and_wait();
  }

  void capture() {
    cudaGraph_t graph = nullptr;
    check(api_, api_.StreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "StreamBeginCapture");
    for (int i = 0; i < batches_.calls; ++i) enqueue_(index_, stream_);
    check(api_, api_.StreamEndCapture(stream_, &graph), "StreamEndCapture");
    const cudaError_t status = api_.GraphInstantiate(&graph_, graph, 0);
    api_.GraphDestroy(graph);
    check(api_, status, "GraphInstantiate");
  }

  // By the slowest of all.
  double sample_us() {
    meeting_.barrier.arrive_and_wait();
    check(api_, api_.EventRecord(begin_, stream_), "EventRecord");
    for (int i = 0; i < batches_.replays; ++i) replay();
    check(api_, api_.EventRecord(end_, stream_), "EventRecord");
    drain();
    float ms = 0;
    check(api_, api_.EventElapsedTime(&ms, begin_, end_), "EventElapsedTime");
    meeting_.us[static_cast<std::size_t>(index_)] = 1e3 * ms / batches_.replays / batches_.calls;
    meeting_.barrier.arrive_and_wait();
    return *std::max_element(meeting_.us.begin(), meeting_.us.end());
  }

 private:
  void replay() {
    if (graph_ != nullptr) {
      check(api_, api_.GraphLaunch(graph_, stream_), "GraphLaunch");
      return;
    }
    for (int i = 0; i < batches_.calls; ++i) enqueue_(index_, stream_);
  }
  void drain() { check(api_, api_.StreamSynchronize(stream_), "StreamSynchronize"); }

  const Api& api_;
  const int index_;
  const Batches& batches_;
  const std::function<void(int, cudaStream_t)>& enqueue_;
  Meeting& meeting_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

void check(const Api& api, cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", what, api.GetErrorString(status)));
}

DeviceMemory::DeviceMemory(const Api& api, std::size_t bytes) : api_(api) {
  check(api_, api_.Malloc(&memory_, bytes), "Malloc");
  check(api_, api_.Memset(memory_, 0, bytes), "Memset");
  check(api_, api_.DeviceSynchronize(), "DeviceSynchronize");
}
DeviceMemory::~DeviceMemory() {
  if (memory_ != nullptr) api_.Free(memory_);
}
void DeviceMemory::write(const void* from, std::size_t bytes, std::size_t byte_offset) const {
  check(api_, api_.Memcpy(as(byte_offset), from, bytes, cudaMemcpyHostToDevice), "Memcpy");
  check(api_, api_.DeviceSynchronize(), "DeviceSynchronize");  // it may return before the bytes are there
}
void DeviceMemory::read(void* to, std::size_t bytes, std::size_t byte_offset) const {
  check(api_, api_.Memcpy(to, as(byte_offset), bytes, cudaMemcpyDeviceToHost), "Memcpy");
}

Timing time_calls(const Api& api, int streams, bool in_graph, const Batches& batches,
                  const std::function<void(int, cudaStream_t)>& enqueue) {
  Meeting meeting(streams);
  std::vector<double> samples;
  {
    std::vector<std::jthread> threads;
    for (int index = 0; index < streams; ++index) {
      threads.emplace_back([&, index] {
        try {
          Caller caller(api, index, batches, enqueue, meeting);
          caller.warm_up();
          if (in_graph) caller.capture();
          for (int i = 0; i < batches.batches; ++i) {
            const double us = caller.sample_us();
            if (index == 0) samples.push_back(us);
          }
          meeting.barrier.arrive_and_wait();  // nothing is freed while another stream's calls run
        } catch (const std::exception& error) {
          fmt::print(stderr, "stream {}: {}\n", index, error.what());
          std::_Exit(1);
        }
      });
    }
  }
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

}  // namespace rondo::gpu_check
