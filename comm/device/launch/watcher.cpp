// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/watcher.hpp"

#include <algorithm>

#include "kernels/thread.hpp"

namespace rondo::comm::device {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kFirst = 1ms;
constexpr std::chrono::milliseconds kAtMost = 10ms;

}  // namespace

void Watcher::rouse() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  if (!thread_.joinable()) thread_ = start_thread("rondo-watcher", [this] { loop(); });
  changed_.notify_all();
}

void Watcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// `awake_` goes down before the look, so that a launch during it rouses us again.
void Watcher::loop() {
  std::unique_lock lock(mutex_);
  auto interval = kFirst;
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || awake_; });
    if (stopping_) return;
    if (changed_.wait_for(lock, interval, [&] { return stopping_; })) return;
    awake_ = false;
    lock.unlock();
    const bool more = look_();
    lock.lock();
    interval = more ? std::min(2 * interval, kAtMost) : kFirst;
    if (more) awake_ = true;
  }
}

}  // namespace rondo::comm::device
