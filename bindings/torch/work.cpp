// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/work.hpp"

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <c10/core/StreamGuard.h>

#include "bindings/torch/devices.hpp"

namespace rondo::torch_backend {

namespace {

std::uint64_t next_key() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

const char* title_of(std::string_view backend, std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string> titles;
  const std::lock_guard lock(mutex);
  return titles.insert(std::string(backend) + ':' + std::string(name)).first->c_str();
}

RondoWork::RondoWork(const About& about, const std::vector<at::Tensor>& inputs, std::shared_ptr<Group> group)
    : Work(about.rank, about.type, about.title, inputs), about_(about), group_(std::move(group)), key_(next_key()) {
  if (has_on_completion_) group_->hooks.begun();
}

RondoWork::~RondoWork() {
  if (has_on_completion_ && !has_ended_) group_->hooks.ended();  // it was never started
}

c10::intrusive_ptr<c10::ivalue::Future> RondoWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  std::vector<c10::Device> devices;
  if (!about_.device.is_cpu()) devices.push_back(about_.device);
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
  if (has_ended_ || place_) {
    mark();  // nothing hangs on it yet
  } else {
    // Before what users hang on it, which may wait for this call. Whoever marks the future holds this object.
    future_->addCallback([this](c10::ivalue::Future&) {
      if (about_.device.is_cpu() || error_) finish(error_);
    });
  }
  return future_;
}

void RondoWork::enqueued(const c10::Stream& stream) {
  Place place{stream, c10::Event(stream.device_type())};
  place.passed.record(stream);
  bool is_awaited = false;
  {
    const std::lock_guard lock(future_mutex_);
    place_.emplace(std::move(place));
    is_awaited = future_ != nullptr;
  }
  if (is_awaited) mark();
}

bool RondoWork::wait(std::chrono::milliseconds timeout) {
  if (about_.device.is_cpu() || timeout != kNoTimeout) Work::wait(timeout);
  if (const auto error = exception()) std::rethrow_exception(error);
  synchronize();
  return true;
}

void RondoWork::synchronize() {
  const std::lock_guard lock(future_mutex_);
  if (place_) place_->passed.block(current_stream(about_.device));
}

void RondoWork::complete(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = Clock::now();
  }
  bool is_awaited = false;
  {
    const std::lock_guard lock(future_mutex_);
    has_ended_ = true;
    error_ = error;
    is_awaited = future_ != nullptr && !future_->completed();
  }
  if (!error) group_->hooks.completed({.completionKey = key_, .duration_ms = getDuration()});
  const auto post = [&](void (RondoWork::*what)()) {
    group_->completer.post(depth_,
                           [self = c10::intrusive_ptr<RondoWork>::reclaim_copy(this), what] { (*self.*what)(); });
  };
  is_awaited ? post(&RondoWork::mark) : finish(error);
  if (has_on_completion_) post(&RondoWork::tell);
}

void RondoWork::mark() {
  if (error_) return future_->setError(error_);
  // A device's future is complete when its stream is: whoever goes on from it waits for what is on the current one.
  const c10::OptionalStreamGuard there(place_ ? std::optional(place_->stream) : std::nullopt);
  future_->markCompleted(c10::IValue(about_.outputs));
}

// The user's hook of the group.
void RondoWork::tell() {
  if (!error_) {
    const std::chrono::duration<float> duration = finished_ - started_;
    group_->hooks.completed(c10d::WorkInfo(about_.type, about_.sequence, started_, finished_, duration));
  }
  group_->hooks.ended();
}

float RondoWork::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(finished_ != Clock::time_point{}, "rondo: a call that is not done has no duration yet");
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

void RondoWork::abort() { TORCH_CHECK(false, "rondo: one call cannot be aborted alone: abort the group"); }

}  // namespace rondo::torch_backend
