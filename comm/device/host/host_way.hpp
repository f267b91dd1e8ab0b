// SPDX-License-Identifier: Apache-2.0
// Calls by way of host memory: a rank's input is copied there on the stream, the ranks make the call on the host, and
// what they got is copied back. The stream waits meanwhile, and no kernel is launched, so that processes that take
// turns on a device wait for no turn of each other. One at a time, in the order of the calls.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include <rondo/communicator.hpp>

#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

class HostWay {
 public:
  static constexpr std::string_view kName = "host";
  // A call on the host failed, or a copy: which rank is to blame, and one sentence. On the thread's own time; once.
  using Fail = std::function<void(const Error& error)>;
  // `host`: a communicator of the same ranks that nobody else uses. `bytes`: of the larger buffer of a call, at most.
  HostWay(const cuda::Api& api, int device, Communicator host, std::size_t bytes, Fail fail);
  ~HostWay();  // the stream has passed the calls, or has been aborted; ends the thread
  HostWay(const HostWay&) = delete;
  HostWay& operator=(const HostWay&) = delete;

  // By the same values on every rank.
  bool takes(const Call& call) const;
  // Nobody waits. The stream is in no capture, and earlier calls are in front of this one on it.
  void enqueue(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout);
  void abort();  // any thread: calls under way end, and streams go on
  std::size_t pinned_bytes() const;
  void keep();  // a busy device still copies from or to its memory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::comm::device
