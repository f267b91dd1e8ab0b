// SPDX-License-Identifier: Apache-2.0
#include "comm/call/engine.hpp"

#include <thread>
#include <utility>

#include "comm/base/log.hpp"

namespace rondo::detail {

void tell(const WorkState::Callback& callback, const std::exception_ptr& error) {
  try {
    callback(error);
  } catch (const std::exception& thrown) {
    log::error("a callback of Work::on_done threw: {}", thrown.what());
  } catch (...) {
    log::error("a callback of Work::on_done threw something that is no exception");
  }
}

}  // namespace rondo::detail

namespace rondo::comm {
namespace {

thread_local const Engine* own_engine = nullptr;  // whose calls this thread of the pool runs

// What a callback waited for would run behind it.
void check_not_in_callback(const Engine* engine) {
  if (own_engine != engine) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of Work::on_done() waits for a call of its own communicator, which would run after the "
              "callback: start it with async() and give it a callback");
}

}  // namespace

void TaskState::wait() {
  std::unique_lock lock(mutex_);
  if (!done_) check_not_in_callback(engine_);
  finished_.wait(lock, [&] { return done_; });  // the call has a deadline of its own
  if (error_) std::rethrow_exception(error_);
}
bool TaskState::wait_for(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  if (!done_ && duration.count() != 0) check_not_in_callback(engine_);
  if (!finished_.wait_for(lock, duration, [&] { return done_; })) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}
bool TaskState::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}
std::exception_ptr TaskState::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}
Work::Times TaskState::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}
void TaskState::on_done(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) return callbacks_.push_back(std::move(callback));
  }
  detail::tell(callback, error_);
}
void TaskState::start() { started_ = std::chrono::steady_clock::now(); }
void TaskState::finish(std::exception_ptr error) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    times_ = {started_, std::chrono::steady_clock::now()};
    error_ = std::move(error);
    callbacks.swap(callbacks_);
  }
  finished_.notify_all();
  for (const Callback& callback : callbacks) detail::tell(callback, error_);
}

Engine::~Engine() {
  if (own_engine == this) {
    log::error("a callback of Work::on_done destroys the communicator of its own call, which is still in use there");
    std::terminate();
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_ && !attended_; });
}

std::shared_ptr<detail::WorkState> Engine::start(Task task) {
  auto state = std::make_shared<TaskState>(this);
  queues_.store(true, std::memory_order_seq_cst);
  const std::lock_guard lock(mutex_);
  if (!pool_) pool_ = EnginePool::of_process();
  queue_.push_back({.task = std::move(task), .state = state});
  try {
    if (!attended_) pool_->attend(*this);
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  attended_ = true;
  ++tasks_;
  changed_.notify_all();
  return state;
}

void Engine::run_in_turn(const Task& body) {
  if (Holding::is_here(this)) return body();
  check_not_in_callback(this);
  queues_.store(true, std::memory_order_seq_cst);
  std::unique_lock lock(mutex_);
  queue_.push_back({.caller = &lock});
  changed_.wait(lock, [&] { return !busy_ && queue_.front().caller == &lock; });
  take_turn(lock);
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  end_turn();
  if (error) std::rethrow_exception(error);
}

// A call that had gone past the queue before there was one says nothing when it ends. There is one at most, and it is
// before all that were queued.
Engine::Entry Engine::take_turn(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::microseconds kNap{200};
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  const bool settled = settled_;
  lock.unlock();
  while (!settled && inside_.load(std::memory_order_seq_cst)) std::this_thread::sleep_for(kNap);
  return entry;
}

void Engine::end_turn() {
  busy_ = false;
  settled_ = true;
  changed_.notify_all();
}

bool Engine::drain_for(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, duration, [&] { return queue_.empty() && !busy_; });
}

std::exception_ptr Engine::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Engine::loop() {
  own_engine = this;
  std::unique_lock lock(mutex_);
  while (tasks_ > 0) {
    changed_.wait(lock, [&] { return !busy_ && queue_.front().caller == nullptr; });
    run_first_task(lock);
  }
  attended_ = false;
  own_engine = nullptr;
  changed_.notify_all();  // with the lock: the engine may be gone without
}

void Engine::run_first_task(std::unique_lock<std::mutex>& lock) {
  Entry entry = take_turn(lock);
  std::exception_ptr error;
  entry.state->start();
  try {
    entry.task();
  } catch (...) {
    error = std::current_exception();
  }
  entry.state->finish(error);
  lock.lock();
  --tasks_;
  if (error && !error_) error_ = error;
  end_turn();
}

thread_local const Engine::Holding* Engine::Holding::innermost = nullptr;
Engine::Holding::Holding(const Engine* engine) : engine_(engine), outer_(std::exchange(innermost, this)) {}
Engine::Holding::~Holding() { innermost = outer_; }
bool Engine::Holding::is_here(const Engine* engine) {
  const Holding* holding = innermost;
  while (holding != nullptr && holding->engine_ != engine) holding = holding->outer_;
  return holding != nullptr;
}

}  // namespace rondo::comm
