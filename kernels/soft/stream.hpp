// SPDX-License-Identifier: Apache-2.0
// A stream: operations done in order by one thread, which starts with the first of them. The thread touches the queue,
// the timeline and what the operations touch.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/soft/timeline.hpp"

namespace rondo::soft {

struct Capture;
struct Device;

struct Operation {
  std::vector<Ticket> after;  // of other streams
  std::function<void()> run;  // empty: only waits
};

class Stream {
 public:
  enum class Kind { legacy, blocking, non_blocking };
  Stream(Device& device, Kind kind) : device_(device), kind_(kind) {}
  ~Stream();  // stops it
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  Kind kind() const { return kind_; }

  Ticket push(Operation operation);
  Ticket tail() const;        // of what was pushed so far
  void finish();              // no operation will follow: the thread ends after the last
  void drop();                // what has not begun is not done, and nobody waits for it
  void join();                // after drop() or finish()
  bool has_finished() const;  // join() will not wait

  std::shared_ptr<Capture> capture;  // that it takes part in; guarded by Process::mutex

 private:
  void work();
  bool take(Operation& operation);
  bool is_dropping() const;

  Device& device_;
  const Kind kind_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Operation> queue_;
  std::uint64_t pushed_ = 0;
  bool finishing_ = false, dropping_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace rondo::soft
