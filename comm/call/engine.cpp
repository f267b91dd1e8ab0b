// SPDX-License-Identifier: Apache-2.0
#include "comm/call/engine.hpp"

#include "comm/base/log.hpp"
#include "kernels/thread.hpp"

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

thread_local const Engine* own_engine = nullptr;  // of an engine's thread

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
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<detail::WorkState> Engine::start(Task task) {
  auto state = std::make_shared<TaskState>(this);
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(task), state});
  if (!thread_.joinable()) thread_ = start_thread("rondo-engine", [this] { loop(); });
  changed_.notify_all();
  return state;
}

bool Engine::drain_for(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, duration, [&] { return queue_.empty() && !busy_; });
}

void Engine::drain() {
  check_not_in_callback(this);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

std::exception_ptr Engine::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Engine::loop() {
  own_engine = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    entry.state->start();
    try {
      entry.task();
    } catch (...) {
      error = std::current_exception();
    }
    entry.state->finish(error);
    lock.lock();
    busy_ = false;
    if (error && !error_) error_ = error;
    changed_.notify_all();
  }
}

}  // namespace rondo::comm
