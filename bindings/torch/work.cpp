// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/work.hpp"

#include <mutex>
#include <set>
#include <string>

namespace rondo::torch_backend {

const char* title_of(std::string_view backend, std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string> titles;
  const std::lock_guard lock(mutex);
  return titles.insert(std::string(backend) + ':' + std::string(name)).first->c_str();
}

RondoWork::RondoWork(const About& about, const std::vector<at::Tensor>& inputs)
    : Work(about.rank, about.type, about.title, inputs),
      about_(about),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void RondoWork::complete(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = Clock::now();
  }
  // Who has waited finds the future done, too.
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(about_.outputs));
  }
  finish(error);
}

float RondoWork::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(finished_ != Clock::time_point{}, "rondo: a call that is not done has no duration yet");
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

void RondoWork::abort() { TORCH_CHECK(false, "rondo: one call cannot be aborted alone: abort the group"); }

}  // namespace rondo::torch_backend
