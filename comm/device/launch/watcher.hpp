// SPDX-License-Identifier: Apache-2.0
// A thread that looks at a communicator's devices now and then while kernels may be running there, and sleeps when
// none can be. What it looks at, and whether there is more to come, its owner's function says.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace rondo::comm::device {

class Watcher {
 public:
  using Look = std::function<bool()>;  // on the watcher's thread; true: kernels may still be running

  explicit Watcher(Look look) : look_(std::move(look)) {}
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Something was launched. Costs one atomic exchange while the watcher is awake; starts the thread the first time.
  void wake() {
    if (!awake_.exchange(true)) rouse();
  }
  void stop();  // after this it does not look any more

 private:
  void rouse();
  void loop();

  Look look_;
  std::atomic<bool> awake_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rondo::comm::device
