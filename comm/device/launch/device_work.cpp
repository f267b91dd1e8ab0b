// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/device_work.hpp"

namespace rondo::comm::device {
namespace {

constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

}  // namespace

DeviceWork::DeviceWork(std::shared_ptr<Status> status, const cuda::Api& api, int device, cudaStream_t stream)
    : status_(std::move(status)), api_(api) {
  {
    const std::lock_guard lock(status_->mutex);
    if (!status_->spare.empty()) {
      event_ = std::move(status_->spare.back());
      status_->spare.pop_back();
    }
  }
  if (!event_) event_ = make_event(api, device);
  check(api, api.EventRecord(event_.get(), stream), device, "recording an event");
}

DeviceWork::~DeviceWork() {
  if (!origin.is_here()) {  // a child's runtime does not know the event, and the lock may be another thread's for ever
    event_.release();
    return;
  }
  const std::lock_guard lock(status_->mutex);
  if (status_->engine != nullptr) status_->spare.push_back(std::move(event_));
}

bool DeviceWork::done() { return api_.EventQuery(event_.get()) != cudaErrorNotReady; }

std::exception_ptr DeviceWork::failure() {
  const std::lock_guard lock(status_->mutex);
  if (status_->engine == nullptr) return status_->error;
  status_->engine->inspect();
  const Failure& failure = status_->engine->team().failure();
  return failure.raised() ? std::make_exception_ptr(failure.error()) : nullptr;
}

std::exception_ptr DeviceWork::error() { return done() ? failure() : nullptr; }

void DeviceWork::on_done(Callback callback) {
  {
    const std::lock_guard lock(status_->mutex);
    if (status_->engine != nullptr && !done()) {
      callbacks_.push_back(std::move(callback));
      if (callbacks_.size() == 1) status_->awaited.push_back(shared_from_this());
      return status_->engine->look_soon();
    }
  }
  rondo::detail::tell(callback, failure());
}

void DeviceWork::tell() {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(status_->mutex);
    callbacks.swap(callbacks_);
  }
  const std::exception_ptr error = failure();
  for (const Callback& callback : callbacks) rondo::detail::tell(callback, error);
}

bool DeviceWork::wait_for(std::chrono::milliseconds duration) {
  std::optional<std::chrono::steady_clock::time_point> failed;
  const bool passed = poll_for(duration, [&] {
    if (done()) return true;
    if (!failure()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!failed) failed = now;
    return now - *failed > DeviceEngine::kDrain;
  });
  if (!passed) return false;
  if (const auto error = failure()) std::rethrow_exception(error);
  return true;
}

void DeviceWork::wait() { wait_for(kForever); }  // the kernels have a deadline of their own

}  // namespace rondo::comm::device
