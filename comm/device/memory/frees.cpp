// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/frees.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo::comm::device {
namespace {

struct DeviceUse {  // of all devices that this process sees
  std::mutex mutex;
  std::condition_variable freed;
  int running = 0;  // ranks
  std::vector<std::function<void()>> waiting;
};

// Not destroyed at exit, when the runtime may be gone; what waits then is the process's to lose.
DeviceUse& use_of(const cuda::Api& api) {
  static std::mutex mutex;
  static auto* const uses = new std::map<const cuda::Api*, DeviceUse>;
  const std::lock_guard lock(mutex);
  return (*uses)[&api];
}

void free_waiting(DeviceUse& use) {
  if (use.running != 0 || use.waiting.empty()) return;
  for (const auto& free : std::exchange(use.waiting, {})) free();
  use.freed.notify_all();
}

}  // namespace

Traffic::~Traffic() {
  if (!running_) return;
  DeviceUse& use = use_of(api_);
  const std::lock_guard lock(use.mutex);
  --use.running;
}

void Traffic::begin() {
  if (running_) return;
  DeviceUse& use = use_of(api_);
  const std::lock_guard lock(use.mutex);
  ++use.running;
  running_ = true;
}

void Traffic::end() {
  if (!running_) return;
  running_ = false;
  DeviceUse& use = use_of(api_);
  const std::lock_guard lock(use.mutex);
  --use.running;
  free_waiting(use);
}

void free_in_peace(const cuda::Api& api, std::function<void()> free) {
  DeviceUse& use = use_of(api);
  const std::lock_guard lock(use.mutex);
  use.waiting.push_back(std::move(free));
  free_waiting(use);
}

bool await_frees(const cuda::Api& api, std::chrono::milliseconds patience) {
  DeviceUse& use = use_of(api);
  std::unique_lock lock(use.mutex);
  if (use.waiting.empty()) return false;
  return use.freed.wait_for(lock, patience, [&] { return use.waiting.empty(); });
}

bool await_no_frees(const cuda::Api& api, std::chrono::milliseconds patience) {
  DeviceUse& use = use_of(api);
  std::unique_lock lock(use.mutex);
  return use.freed.wait_for(lock, patience, [&] { return use.waiting.empty(); });
}

}  // namespace rondo::comm::device
