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
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/base/fork.hpp"

namespace rondo::detail {

// What stands behind a Work; see there.
struct WorkState {
  const Origin origin{};
  virtual ~WorkState() = default;
  virtual void wait() = 0;
  virtual bool wait_for(std::chrono::milliseconds duration) = 0;
  virtual bool done() = 0;
  virtual std::exception_ptr error() = 0;
  virtual Work::Times times() { return {}; }
  virtual int source() { return -1; }
  using Callback = std::function<void(std::exception_ptr)>;
  virtual void on_done(Callback callback) = 0;
};
// What a callback throws is nobody's to catch.
void tell(const WorkState::Callback& callback, const std::exception_ptr& error);

}  // namespace rondo::detail

namespace rondo::comm {

class Engine;

// A call that runs on an engine's thread.
class TaskState final : public detail::WorkState {
 public:
  explicit TaskState(const Engine* engine) : engine_(engine) {}
  void wait() override;
  bool wait_for(std::chrono::milliseconds duration) override;
  bool done() override;
  std::exception_ptr error() override;
  Work::Times times() override;
  void on_done(Callback callback) override;
  void start();
  void finish(std::exception_ptr error);

 private:
  const Engine* engine_;  // to compare alone
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  std::vector<Callback> callbacks_;
  std::exception_ptr error_;
  std::chrono::steady_clock::time_point started_{};  // the engine's thread alone uses it before the end
  Work::Times times_{};
};

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
    std::shared_ptr<TaskState> state;
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
