// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/timeline.hpp"

namespace rondo::soft {

void Timeline::finish(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  done_ = number;
  moved_.notify_all();
}

void Timeline::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  moved_.notify_all();
}

bool Timeline::reached(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return closed_ || done_ >= number;
}

void Timeline::wait(std::uint64_t number) const {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return closed_ || done_ >= number; });
}

}  // namespace rondo::soft
