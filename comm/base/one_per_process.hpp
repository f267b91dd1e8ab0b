// SPDX-License-Identifier: Apache-2.0
// What all communicators of a process share: made with the first that asks, gone with the last that has it. A child of
// fork() makes its own, and waits for no lock that its parent held.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "comm/base/fork.hpp"

namespace rondo {

// Static, and of any thread.
template <class T>
class OnePerProcess {
 public:
  std::shared_ptr<T> get() {
    Shared& shared = here();
    const std::lock_guard lock(shared.mutex);
    std::shared_ptr<T> object = shared.object.lock();
    if (!object) shared.object = object = std::make_shared<T>();
    return object;
  }

 private:
  struct Shared {
    const Origin origin{};
    std::mutex mutex{};
    std::weak_ptr<T> object{};
  };
  Shared& here() {
    Shared* known = shared_.load(std::memory_order_acquire);
    while (known == nullptr || !known->origin.is_here()) {
      auto own = std::make_unique<Shared>();
      if (!shared_.compare_exchange_strong(known, own.get(), std::memory_order_acq_rel)) continue;
      forks::forget(known);
      return *own.release();
    }
    return *known;
  }
  std::atomic<Shared*> shared_{nullptr};
};

}  // namespace rondo
