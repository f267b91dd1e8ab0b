// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what `body` enqueues on a stream.
#pragma once
#include "tests/comm/device/worlds.hpp"

namespace rondo::test {

inline void must(cudaError_t code) { expect(code == cudaSuccess, cuda::soft_api().GetErrorString(code)); }

class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, Body body) : stream_(stream) {
    const cuda::Api& api = cuda::soft_api();
    must(api.StreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    must(api.StreamEndCapture(stream, &graph_));
    must(api.GraphInstantiate(&runnable_, graph_, 0));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cuda::soft_api().GraphExecDestroy(runnable_);
    cuda::soft_api().GraphDestroy(graph_);
  }
  void launch() { must(cuda::soft_api().GraphLaunch(runnable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t runnable_ = nullptr;
};

}  // namespace rondo::test
