// SPDX-License-Identifier: Apache-2.0
// Events, and streams that wait for them. In a capture they only say what comes after what.
#include <chrono>

#include "kernels/soft/call.hpp"
#include "kernels/soft/event.hpp"
#include "kernels/soft/graph.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

cudaError_t create(cudaEvent_t* out, unsigned flags) {
  return device_call([&](Process& here) {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (out == nullptr) return cudaErrorInvalidValue;
    if ((flags & ~known) != 0) return flags & cudaEventInterprocess ? cudaErrorNotSupported : cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    auto event = std::make_shared<Event>();
    event->device = &here.current();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    *out = here.has.events.add(std::move(event));
    return cudaSuccess;
  });
}

cudaError_t destroy(cudaEvent_t handle) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    return here.has.events.remove(handle) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
  });
}

cudaError_t record_in_capture(Event& event, const Stream& stream) {
  if (stream.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  event.record = nullptr;
  event.ticket = {};
  event.capture = stream.capture;
  event.nodes = stream.capture->branches.at(const_cast<Stream*>(&stream)).heads;
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle) {
  return device_call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const auto event = here.has.events.find(handle);
    const auto stream = here.stream(stream_handle);
    if (event == nullptr || stream == nullptr || event->device != &stream->device()) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture != nullptr) return record_in_capture(*event, *stream);
    auto passed = std::make_shared<Event::Record>();
    const cudaError_t code = submit(here, *stream, [passed] { passed->passed_ns = now_ns(); });
    if (code != cudaSuccess) return code;
    event->capture = nullptr;
    event->nodes.clear();
    event->record = std::move(passed);
    event->ticket = stream->tail();
    return cudaSuccess;
  });
}

cudaError_t spoil(Capture& capture, cudaError_t code) {
  capture.invalidated = true;
  return code;
}

// The stream comes after captured work: it is part of the capture from now on.
cudaError_t wait_in_capture(Stream& stream, const Event& event) {
  Capture& capture = *event.capture;
  if (capture.ended) return cudaErrorCapturedEvent;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->invalidated = true;
    return spoil(capture, cudaErrorStreamCaptureMerge);
  }
  if (stream.kind() == Stream::Kind::legacy) return spoil(capture, cudaErrorStreamCaptureImplicit);
  stream.capture = event.capture;
  capture.join(stream, event.nodes);
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t stream_handle, cudaEvent_t handle, unsigned flags) {
  return device_call([&](Process& here) {
    if (flags != 0) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto event = here.has.events.find(handle);
    const auto stream = here.stream(stream_handle);
    if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->capture != nullptr) return wait_in_capture(*stream, *event);
    if (stream->capture != nullptr) return spoil(*stream->capture, cudaErrorStreamCaptureIsolation);
    const cudaError_t refused = refuse_implicit_use(here, *stream);
    if (refused == cudaSuccess && event->record != nullptr) push(here, *stream, {{event->ticket}, {}});
    return refused;
  });
}

// The event's record, if the host may ask for it now. Null: never recorded.
cudaError_t find_waitable(Process& here, cudaEvent_t handle, Ticket& ticket, Device*& device) {
  const auto event = here.has.events.find(handle);
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  if (event->capture != nullptr) {
    return event->capture->ended ? cudaErrorCapturedEvent : spoil(*event->capture, cudaErrorCapturedEvent);
  }
  ticket = event->ticket;
  device = event->device;
  return refuse_unsafe_call(here);
}

cudaError_t query(cudaEvent_t handle) {
  return device_call([&](Process& here) {
    Ticket ticket;
    Device* device = nullptr;
    const std::lock_guard lock(here.mutex);
    const cudaError_t refused = find_waitable(here, handle, ticket, device);
    if (refused != cudaSuccess) return refused;
    if (device->has_failed()) return device->failure();
    return ticket.is_done() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t synchronize_event(cudaEvent_t handle) {
  return device_call([&](Process& here) {
    Ticket ticket;
    Device* device = nullptr;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = find_waitable(here, handle, ticket, device);
      if (refused != cudaSuccess) return refused;
    }
    ticket.wait();
    return device->failure();
  });
}

cudaError_t elapsed(float* milliseconds, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  return device_call([&](Process& here) {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto begin = here.has.events.find(begin_handle);
    const auto end = here.has.events.find(end_handle);
    for (const auto& event : {begin, end}) {
      if (event == nullptr || !event->timing) return cudaErrorInvalidResourceHandle;
      if (event->capture != nullptr) return cudaErrorCapturedEvent;
      if (event->record == nullptr) return cudaErrorInvalidResourceHandle;
    }
    if (!begin->ticket.is_done() || !end->ticket.is_done()) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(end->record->passed_ns - begin->record->passed_ns) * 1e-6F;
    return cudaSuccess;
  });
}

}  // namespace

void add_event_calls(cuda::Api& api) {
  api.EventCreateWithFlags = &create;
  api.EventDestroy = &destroy;
  api.EventRecord = &record;
  api.EventQuery = &query;
  api.EventSynchronize = &synchronize_event;
  api.EventElapsedTime = &elapsed;
  api.StreamWaitEvent = &wait;
}

}  // namespace rondo::soft
