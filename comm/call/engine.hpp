// SPDX-License-Identifier: Apache-2.0
// The order of a communicator's calls: one at a time, as they come, whichever thread makes them. Asynchronous ones
// run on a thread of the pool, blocking ones where they are made.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/base/fork.hpp"
#include "comm/call/engine_pool.hpp"

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
  // Runs `body` when everything that came before it is done. Until two calls have met, or one was asynchronous, the
  // price is an exchange. invalid_argument: from a callback.
  template <class Body>
  [[gnu::always_inline]] void in_turn(Body body) {
    if (!goes_past()) [[unlikely]]
      return wait_in_turn(body);
    const Leaving leaving(inside_);
    body();
  }
  // The same for what is made of several calls: those that `body` makes are within its turn.
  template <class Body>
  void in_one_turn(Body&& body) {
    in_turn([&] {
      const Holding holding(this);
      body();
    });
  }
  bool drain_for(std::chrono::milliseconds duration);  // false: something is still running
  // The first error of an asynchronous task since the start, for check(); null when there was none.
  std::exception_ptr error() const;

 private:
  friend class EnginePool;
  struct Entry {
    Task task{};
    std::shared_ptr<TaskState> state{};
    const void* caller = nullptr;  // of a blocking call, which waits in its own thread; null: a task
  };
  class Leaving {
   public:
    explicit Leaving(std::atomic<bool>& inside) : inside_(inside) {}
    ~Leaving() { inside_.store(false, std::memory_order_release); }
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;

   private:
    std::atomic<bool>& inside_;
  };
  class Holding {  // on the thread that runs the turn
   public:
    explicit Holding(const Engine* engine);
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;
    static bool is_here(const Engine* engine);

   private:
    static thread_local const Holding* innermost;
    const Engine* engine_;
    const Holding* outer_;
  };

  bool goes_past() {
    if (inside_.exchange(true, std::memory_order_seq_cst)) return false;
    if (!queues_.load(std::memory_order_seq_cst)) [[likely]]
      return true;
    inside_.store(false, std::memory_order_release);
    return false;
  }
  template <class Body>
  [[gnu::noinline, gnu::cold]] void wait_in_turn(Body body) {
    run_in_turn(std::ref(body));
  }
  void run_in_turn(const Task& body);
  void loop();  // of the pool's thread, until there is no task
  void run_first_task(std::unique_lock<std::mutex>& lock);
  // Of the thread that is first now: with the lock, which it gives back. It has the turn until end_turn().
  Entry take_turn(std::unique_lock<std::mutex>& lock);
  void end_turn();  // with the lock

  std::atomic<bool> inside_{false};  // a call runs that went past the queue
  std::atomic<bool> queues_{false};  // once and for good: no call goes past the queue any more
  mutable std::mutex mutex_;         // guards the rest
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  std::size_t tasks_ = 0;  // of those
  bool attended_ = false;  // a thread of the pool has been asked to run them, or does
  bool busy_ = false;      // a call has its turn
  bool settled_ = false;   // no call runs any more that went past the queue
  std::exception_ptr error_;
  std::shared_ptr<EnginePool> pool_;
};

}  // namespace rondo::comm
