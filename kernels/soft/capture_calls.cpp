// SPDX-License-Identifier: Apache-2.0
// Stream capture: from begin to end, work of a stream and of those that join it through events is recorded, not done.
#include "kernels/soft/call.hpp"
#include "kernels/soft/graph.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return device_call([&](Process& here) {
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->kind() == Stream::Kind::legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    static unsigned long long latest = 0;  // guarded by Process::mutex
    capture->id = ++latest;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->join(*stream, {});
    stream->capture = capture;
    here.has.captures.insert(std::move(capture));
    return cudaSuccess;
  });
}

void end_for_all_streams(Process& here, const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& [stream, branch] : capture->branches) stream->capture = nullptr;
  here.has.captures.erase(capture);
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* out) {
  return device_call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    Graph graph;  // of a capture that failed: what it retains is let go without the lock
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream.get()) return cudaErrorStreamCaptureUnmatched;
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const bool joined = capture->is_joined();
    end_for_all_streams(here, capture);
    std::swap(graph, capture->graph);
    if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    *out = here.has.graphs.add(std::make_shared<Graph>(std::move(graph)));
    return cudaSuccess;
  });
}

cudaError_t status(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  return device_call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *out = cudaStreamCaptureStatusNone;
    const cudaError_t refused = refuse_implicit_use(here, *stream);
    if (refused != cudaSuccess) return refused;
    if (stream->capture == nullptr) return cudaSuccess;
    *out = stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t id(cudaStream_t handle, unsigned long long* out) {
  return device_call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture == nullptr) return cudaErrorIllegalState;
    if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    *out = stream->capture->id;
    return cudaSuccess;
  });
}

cudaError_t retain(cudaStream_t handle, cudaUserObject_t object_handle) {
  return device_call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    const auto object = here.has.user_objects.find(object_handle);
    if (stream == nullptr || object == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture == nullptr) return cudaErrorIllegalState;
    if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    stream->capture->graph.retained.push_back(object->data);
    return cudaSuccess;
  });
}

}  // namespace

void add_capture_calls(cuda::Api& api) {
  api.StreamBeginCapture = &begin;
  api.StreamEndCapture = &end;
  api.StreamIsCapturing = &status;
  api.StreamCaptureId = &id;
  api.StreamRetainInCapture = &retain;
}

}  // namespace rondo::soft
