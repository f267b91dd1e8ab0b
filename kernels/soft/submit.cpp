// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/submit.hpp"

#include "kernels/soft/graph.hpp"

namespace rondo::soft {

Ticket push(Process& here, Stream& stream, Operation operation) {
  Device& device = stream.device();
  if (stream.kind() == Stream::Kind::blocking) operation.after.push_back(device.legacy->tail());
  if (stream.kind() == Stream::Kind::legacy) {
    for (const auto& other : here.streams_of(device)) {
      if (other->kind() == Stream::Kind::blocking) operation.after.push_back(other->tail());
    }
  }
  return stream.push(std::move(operation));
}

cudaError_t submit(Process& here, Stream& stream, Work work) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    stream.capture->add(stream, std::move(work));
    return cudaSuccess;
  }
  const cudaError_t refused = refuse_implicit_use(here, stream);
  if (refused == cudaSuccess) push(here, stream, {{}, std::move(work)});
  return refused;
}

cudaError_t refuse_capturing(Stream& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  stream.capture->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_implicit_use(Process& here, const Stream& stream) {
  if (stream.kind() != Stream::Kind::legacy) return cudaSuccess;
  cudaError_t code = cudaSuccess;
  for (const auto& other : here.streams_of(stream.device())) {
    if (other->kind() != Stream::Kind::blocking || other->capture == nullptr) continue;
    other->capture->invalidated = true;
    code = cudaErrorStreamCaptureImplicit;
  }
  return code;
}

cudaError_t refuse_unsafe_call(Process& here) {
  cudaError_t code = cudaSuccess;
  for (const auto& capture : here.has.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool forbids =
        capture->mode == cudaStreamCaptureModeGlobal || (capture->mode == cudaStreamCaptureModeThreadLocal && mine);
    if (!forbids) continue;
    capture->invalidated = true;
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

}  // namespace rondo::soft
