// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/frees.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo::comm::device {
namespace {

struct Place {  // a device as this process sees it
  std::mutex mutex;
  std::condition_variable freed;
  int running = 0;  // ranks
  std::vector<std::function<void()>> waiting;
};

// Not destroyed at exit, when the runtime may be gone; what waits then is the process's to lose.
Place& place_of(const cuda::Api& api, int device) {
  static std::mutex mutex;
  static auto* const places = new std::map<std::pair<const cuda::Api*, int>, Place>;
  const std::lock_guard lock(mutex);
  return (*places)[{&api, device}];
}

void free_waiting(Place& place) {
  if (place.running != 0 || place.waiting.empty()) return;
  for (const auto& free : std::exchange(place.waiting, {})) free();
  place.freed.notify_all();
}

}  // namespace

Traffic::~Traffic() {
  if (!running_) return;
  Place& place = place_of(api_, device_);
  const std::lock_guard lock(place.mutex);
  --place.running;
}

void Traffic::begin() {
  if (running_) return;
  Place& place = place_of(api_, device_);
  const std::lock_guard lock(place.mutex);
  ++place.running;
  running_ = true;
}

void Traffic::end() {
  if (!running_) return;
  running_ = false;
  Place& place = place_of(api_, device_);
  const std::lock_guard lock(place.mutex);
  --place.running;
  free_waiting(place);
}

void free_in_peace(const cuda::Api& api, int device, std::function<void()> free) {
  Place& place = place_of(api, device);
  const std::lock_guard lock(place.mutex);
  place.waiting.push_back(std::move(free));
  free_waiting(place);
}

bool await_frees(const cuda::Api& api, int device, std::chrono::milliseconds patience) {
  Place& place = place_of(api, device);
  std::unique_lock lock(place.mutex);
  if (place.waiting.empty()) return false;
  return place.freed.wait_for(lock, patience, [&] { return place.waiting.empty(); });
}

}  // namespace rondo::comm::device
