// SPDX-License-Identifier: Apache-2.0
// Kernels count the collectives that are launched in their regions. Where a communicator has several, its ranks count
// calls: which of them a kernel's was.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

namespace rondo::comm::device {

class Numbers {
 public:
  // Kernels' next collective belongs to that call.
  void note(std::uint64_t call) {
    const std::lock_guard lock(mutex_);
    ++count_;
    calls_[count_ % calls_.size()] = call;
  }
  void close() {  // from here on graphs replay calls, and nobody knows how many
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  std::optional<std::uint64_t> of(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    if (closed_ || number == 0 || number > count_ || count_ - number >= calls_.size()) return std::nullopt;
    return calls_[number % calls_.size()];
  }

 private:
  mutable std::mutex mutex_;
  std::array<std::uint64_t, 256> calls_{};
  std::uint64_t count_ = 0;
  bool closed_ = false;
};

}  // namespace rondo::comm::device
