// SPDX-License-Identifier: Apache-2.0
// How far a stream has come, for whoever waits for it: its numbered operations end in order.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace rondo::soft {

class Timeline {
 public:
  void finish(std::uint64_t number);
  void close();  // nothing more will be done, and nobody waits any more
  bool reached(std::uint64_t number) const;
  void wait(std::uint64_t number) const;  // as long as kernels take, whose own deadlines bound it

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable moved_;
  std::uint64_t done_ = 0;
  bool closed_ = false;
};

// One operation of one stream. Empty: done.
struct Ticket {
  std::shared_ptr<Timeline> line;
  std::uint64_t number = 0;

  bool is_done() const { return line == nullptr || line->reached(number); }
  void wait() const {
    if (line != nullptr) line->wait(number);
  }
};

}  // namespace rondo::soft
