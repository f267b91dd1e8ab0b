// SPDX-License-Identifier: Apache-2.0
// The last calls of this rank, kept in memory and written as JSON on failure or on demand.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "comm/signature.hpp"

namespace rondo::comm {

class FlightRecorder {
 public:
  void begin(const Signature& signature, std::string_view algorithm);
  void end();  // of the latest begin()
  std::string json(int rank, int world_size, std::string_view failure) const;

 private:
  static constexpr std::size_t kCalls = 64;
  struct Entry {
    Signature signature;
    std::string_view algorithm;  // a table's name
    std::chrono::steady_clock::time_point begun, ended;
    bool done = false;
  };
  mutable std::mutex mutex_;
  std::array<Entry, kCalls> entries_{};
  std::uint64_t calls_ = 0;
};

}  // namespace rondo::comm
