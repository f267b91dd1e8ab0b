// SPDX-License-Identifier: Apache-2.0
// When a device's stream passed certain places, on the host's clock. Its events are made once and used in every step.
#pragma once
#include <chrono>
#include <cstddef>
#include <vector>

#include <rondo/device.hpp>

namespace rondo::trainer {

class StreamClock {
 public:
  using Clock = std::chrono::steady_clock;

  StreamClock(const Device& device, Stream stream) : device_(device), stream_(stream) {}

  void begin_step() { marks_ = 0; }
  // A place on the stream; the first of a step is number 0.
  void mark() {
    if (marks_ == events_.size()) events_.emplace_back(device_);
    events_[marks_++].record(stream_);
  }
  // The stream has passed all marks, the last of them just now.
  void passed() { last_ = Clock::now(); }
  Clock::time_point at(std::size_t mark) const {
    const std::chrono::duration<double> before_last(events_[marks_ - 1].seconds_since(events_[mark]));
    return last_ - std::chrono::duration_cast<Clock::duration>(before_last);
  }

 private:
  Device device_;
  Stream stream_;
  std::vector<DeviceEvent> events_;
  std::size_t marks_ = 0;  // of this step
  Clock::time_point last_{};
};

}  // namespace rondo::trainer
