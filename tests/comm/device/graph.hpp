// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what `body` enqueues on a stream.
#pragma once
#include "tests/comm/device/worlds.hpp"

namespace rondo::test {

inline void must(cudaError_t code) { expect(code == cudaSuccess, api_under_test().GetErrorString(code)); }

class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, Body body) : stream_(stream) {
    const cuda::Api& api = api_under_test();
    must(api.StreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    must(api.StreamEndCapture(stream, &graph_));
    must(api.GraphInstantiate(&runnable_, graph_, 0));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    api_under_test().GraphExecDestroy(runnable_);
    api_under_test().GraphDestroy(graph_);
  }
  void launch() { must(api_under_test().GraphLaunch(runnable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t runnable_ = nullptr;
};

}  // namespace rondo::test
