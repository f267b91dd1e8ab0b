// SPDX-License-Identifier: Apache-2.0
// Calls on tensors of a device: enqueued in the order in which they come.
#include <exception>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/devices.hpp"
#include "bindings/torch/torch_store.hpp"

namespace rondo::torch_backend {

// With device_mutex_ held.
Communicator& RondoBackend::device_communicator(const c10::Device& device) {
  std::unique_lock lock(mutex_);
  communicator();  // or it was shut down
  if (!on_device_) {
    rondo::Options how;
    how.device = device_of("a group", device);
    if (current_stream(device).is_capturing())
      C10_THROW_ERROR(ValueError, c10::str("rondo: a group's first call on ", device, " cannot be captured"));
    TorchStore meeting(c10::make_intrusive<c10d::PrefixStore>("device", store_));
    how.timeout = how.join_timeout = options_->timeout;
    lock.unlock();
    auto made = Communicator::create({.rank = getRank(), .world_size = getSize(), .store = &meeting}, how);
    lock.lock();
    communicator();
    on_device_ = std::move(made);
    device_ = device;
  }
  if (device_ == device) return on_device_;
  C10_THROW_ERROR(ValueError,
                  c10::str("rondo: a call on ", device, ", and rank ", getRank(), " of this group is on ", *device_));
}

// Until what the device's current stream holds by now is done.
void RondoBackend::synchronize_device() {
  std::unique_lock lock(mutex_);
  const auto device = device_;
  lock.unlock();
  if (device) current_stream(*device).synchronize();
}

void RondoBackend::eagerConnectSingleDevice(at::Device device) {
  if (device.is_cpu()) return;
  const std::lock_guard turn(device_mutex_);
  try {
    device_communicator(device);
  } catch (...) {
    std::rethrow_exception(error_of("init_process_group", std::current_exception()));
  }
}

void RondoBackend::enqueue(const std::vector<Started>& tasks, Milliseconds timeout) {
  const Task& last = *tasks.back().task;
  std::optional<c10::Stream> stream;
  try {
    const std::lock_guard turn(device_mutex_);
    device_communicator(last.device);
    const c10::Stream current = current_stream(last.device);
    stream = current;
    if (last.runs_async) {
      if (!beside_) beside_ = c10::impl::VirtualGuardImpl(last.device.type()).getStreamFromGlobalPool(last.device);
      stream = beside_;
      wait_for(current, *stream);
    }
    enqueue_on(*stream, tasks, timeout);
  } catch (...) {
    const std::exception_ptr error = error_of(last.name, std::current_exception());
    for (const Started& each : tasks) each.work->fail_at_start(error);
    std::rethrow_exception(error);
  }
  for (const Started& each : tasks) each.work->enqueued(*stream);
}

// The calls hold what they work on until they are done, so that nothing else gets the memory meanwhile. What a graph
// captures is done when it is captured, and its memory the graph's.
void RondoBackend::enqueue_on(const c10::Stream& stream, const std::vector<Started>& tasks, Milliseconds timeout) {
  const c10::StreamGuard there(stream);
  Group group = on_device_.group(timeout);
  for (const Started& each : tasks) {
    for (Call call : each.task->calls) {
      call.stream = stream.native_handle();
      group.submit(call);
    }
  }
  const bool is_captured = stream.is_capturing();
  rondo::Work running = is_captured ? rondo::Work() : group.start();
  if (is_captured) group.end();
  for (const Started& each : tasks) {
    each.task->finish();
    if (!is_captured) continue;
    for (const at::Tensor& tensor : each.task->kept)
      c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
  running.on_done([tasks, rank = getRank()](const std::exception_ptr& error) { end(tasks, rank, error); });
}

}  // namespace rondo::torch_backend
