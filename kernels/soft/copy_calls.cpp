// SPDX-License-Identifier: Apache-2.0
// Copies and fills, as asynchronous as CUDA's: one that starts in pageable host memory has read it when the call
// returns, one that ends there is done; a fill and a copy within device memory are only enqueued, whatever the call.
#include <cstring>

#include "kernels/soft/call.hpp"
#include "kernels/soft/devices.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

enum class Side { device, pinned, pageable };
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  Side source, destination;
};

Side side_of(Process& here, const void* address) {
  const Memory::Found place = here.has.memory.find(address);
  if (!place) return Side::pageable;
  return place.allocation->is_host() ? Side::pinned : Side::device;
}

// What `kind` calls device memory must be the runtime's, all of it.
bool is_valid(Process& here, const Copy& copy, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_ours = to_device || copy.destination != Side::pageable;
  const bool from_ours = from_device || copy.source != Side::pageable;
  return (!to_ours || here.has.memory.holds(copy.to, copy.bytes)) &&
         (!from_ours || here.has.memory.holds(copy.from, copy.bytes));
}

// What the stream is to do; pageable sources are read now.
std::function<void()> work_of(const Copy& copy, bool reads_now) {
  if (!reads_now) return [copy] { std::memmove(copy.to, copy.from, copy.bytes); };
  const auto* const first = static_cast<const std::byte*>(copy.from);
  auto staged = std::make_shared<const std::vector<std::byte>>(first, first + copy.bytes);
  return [copy, staged] { std::memcpy(copy.to, staged->data(), copy.bytes); };
}

// Between devices whose bus loses what one writes to the other.
bool is_lost(Process& here, const Copy& copy) {
  const Memory::Found from = here.has.memory.find(copy.from), to = here.has.memory.find(copy.to);
  if (!from || !to || copy.source != Side::device || copy.destination != Side::device) return false;
  return is_among(here.settings.broken_peers, from.allocation->device->number, to.allocation->device->number);
}

enum class Wait { as_needed, unless_within_device };

cudaError_t copy_in(Process& here, const std::shared_ptr<Stream>& stream, Copy copy, cudaMemcpyKind kind, Wait wait) {
  Ticket ticket;
  {
    const std::lock_guard lock(here.mutex);
    copy.source = side_of(here, copy.from);
    copy.destination = side_of(here, copy.to);
    if (!is_valid(here, copy, kind)) return cudaErrorInvalidValue;
    const bool captures = stream->capture != nullptr;
    const bool reads_now = copy.source == Side::pageable && !captures;
    const cudaError_t code =
        submit(here, *stream, is_lost(here, copy) ? std::function<void()>([] {}) : work_of(copy, reads_now));
    if (code != cudaSuccess || captures) return code;
    const bool to_host = copy.destination != Side::device;
    const bool from_pinned = copy.source == Side::pinned;
    const bool waits = wait == Wait::unless_within_device ? to_host || from_pinned : copy.destination == Side::pageable;
    if (!waits) return cudaSuccess;
    ticket = stream->tail();
  }
  ticket.wait();
  return cudaSuccess;
}

bool is_kind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

cudaError_t copy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return device_call([&](Process& here) {
    if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
    std::shared_ptr<Stream> stream;
    {
      const std::lock_guard lock(here.mutex);
      stream = here.stream(handle);
    }
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    return copy_in(here, stream, {to, from, bytes, {}, {}}, kind, Wait::as_needed);
  });
}

cudaError_t copy_now(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return device_call([&](Process& here) {
    if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
    std::shared_ptr<Stream> stream;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = refuse_unsafe_call(here);
      if (refused != cudaSuccess) return refused;
      stream = here.current().legacy;
    }
    if (bytes == 0) return cudaSuccess;
    return copy_in(here, stream, {to, from, bytes, {}, {}}, kind, Wait::unless_within_device);
  });
}

cudaError_t fill(Process& here, void* to, int value, std::size_t bytes, cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = here.stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (!here.has.memory.holds(to, bytes)) return cudaErrorInvalidValue;
  return submit(here, *stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t fill_async(void* to, int value, std::size_t bytes, cudaStream_t handle) {
  return device_call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    return fill(here, to, value, bytes, handle);
  });
}

cudaError_t fill_now(void* to, int value, std::size_t bytes) {
  return device_call([&](Process& here) {
    Ticket ticket;
    {
      const std::lock_guard lock(here.mutex);
      const cudaError_t refused = refuse_unsafe_call(here);
      if (refused != cudaSuccess) return refused;
      const cudaError_t code = fill(here, to, value, bytes, nullptr);
      if (code != cudaSuccess || side_of(here, to) == Side::device) return code;
      ticket = here.current().legacy->tail();
    }
    ticket.wait();  // pinned memory: done when the call returns
    return cudaSuccess;
  });
}

}  // namespace

void add_copy_calls(cuda::Api& api) {
  api.Memcpy = &copy_now;
  api.MemcpyAsync = &copy_async;
  api.Memset = &fill_now;
  api.MemsetAsync = &fill_async;
}

}  // namespace rondo::soft
