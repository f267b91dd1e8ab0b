// SPDX-License-Identifier: Apache-2.0
// Streams, and waits for them.
#include "kernels/soft/call.hpp"
#include "kernels/soft/submit.hpp"
#include "kernels/soft/synchronize.hpp"

namespace rondo::soft {

void synchronize(Process& here, const Device& device) {
  std::vector<Ticket> tails;
  {
    const std::lock_guard lock(here.mutex);
    for (const auto& stream : here.streams_of(device)) tails.push_back(stream->tail());
  }
  for (const Ticket& tail : tails) tail.wait();
}

void synchronize_before_free(Process& here, const Device& device) {
  std::vector<Device*> concerned;  // in their order, so that two who free cannot wait for each other
  {
    const std::lock_guard lock(here.mutex);
    for (const auto& other : here.has.devices) {
      if (other.get() == &device || other->peers.contains(device.index)) concerned.push_back(other.get());
    }
  }
  std::vector<std::unique_lock<std::mutex>> none_begins;
  for (Device* each : concerned) none_begins.emplace_back(each->launching);
  for (const Device* each : concerned) synchronize(here, *each);
}

namespace {

cudaError_t create(cudaStream_t* out, unsigned flags) {
  return device_call([&](Process& here) {
    if (out == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
    here.join_retired();
    const std::lock_guard lock(here.mutex);
    const auto kind = flags == cudaStreamNonBlocking ? Stream::Kind::non_blocking : Stream::Kind::blocking;
    *out = here.has.streams.add(std::make_shared<Stream>(here.current(), kind));
    return cudaSuccess;
  });
}

// Returns at once; the work that is left is done.
cudaError_t destroy(cudaStream_t handle) {
  return call([&](Process& here) {
    std::shared_ptr<Stream> stream;
    {
      const std::lock_guard lock(here.mutex);
      stream = here.has.streams.find(handle);
      if (stream == nullptr) return cudaErrorInvalidResourceHandle;
      const cudaError_t refused = refuse_capturing(*stream);
      if (refused != cudaSuccess) return refused;
      here.has.streams.remove(handle);
    }
    here.retire(std::move(stream));
    here.join_retired();
    return cudaSuccess;
  });
}

// The stream, if the host may wait for it or ask about it now.
cudaError_t find_waitable(Process& here, cudaStream_t handle, std::shared_ptr<Stream>& stream) {
  stream = here.stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  cudaError_t refused = refuse_capturing(*stream);
  if (refused == cudaSuccess) refused = refuse_implicit_use(here, *stream);
  return refused == cudaSuccess ? refuse_unsafe_call(here) : refused;
}

cudaError_t synchronize_stream(cudaStream_t handle) {
  return device_call([&](Process& here) {
    std::shared_ptr<Stream> stream;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = find_waitable(here, handle, stream);
      if (refused != cudaSuccess) return refused;
    }
    stream->tail().wait();
    return stream->device().failure();
  });
}

cudaError_t query(cudaStream_t handle) {
  return device_call([&](Process& here) {
    std::shared_ptr<Stream> stream;
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = find_waitable(here, handle, stream);
    if (refused != cudaSuccess) return refused;
    if (stream->device().has_failed()) return stream->device().failure();
    return stream->tail().is_done() ? cudaSuccess : cudaErrorNotReady;
  });
}

}  // namespace

void add_stream_calls(cuda::Api& api) {
  api.StreamCreateWithFlags = &create;
  api.StreamDestroy = &destroy;
  api.StreamSynchronize = &synchronize_stream;
  api.StreamQuery = &query;
}

}  // namespace rondo::soft
