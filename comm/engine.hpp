// SPDX-License-Identifier: Apache-2.0
// Runs asynchronous calls one after the other on a thread of the communicator, started by the first of them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rondo::detail {

struct WorkState {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr error;
};

}  // namespace rondo::detail

namespace rondo::comm {

class Engine {
 public:
  using Task = std::function<void()>;
  Engine() = default;
  ~Engine();  // runs what is queued: a failed communicator's tasks throw at once
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::shared_ptr<detail::WorkState> start(Task task);
  bool drain_for(std::chrono::milliseconds duration);  // false: something is still running
  void drain();  // until everything started so far is done; a blocking call queues behind
  // The first error of a task since the start, for check(); null when there was none.
  std::exception_ptr error() const;

 private:
  struct Entry {
    Task task;
    std::shared_ptr<detail::WorkState> state;
  };
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  bool busy_ = false, stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace rondo::comm
