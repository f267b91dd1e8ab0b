// SPDX-License-Identifier: Apache-2.0
// A coroutine that is awaited by another one, or started by hand; who destroys it destroys what it awaits. One thread.
#pragma once
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace rondo::rendezvous::test {

template <class T>
class Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;
  struct Final {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) noexcept { return ended.promise().awaiting; }
    void await_resume() noexcept {}
  };
  struct promise_type {
    std::optional<T> value{};
    std::exception_ptr error{};
    std::coroutine_handle<> awaiting = std::noop_coroutine();
    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_value(T result) { value.emplace(std::move(result)); }
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  void start() { handle_.resume(); }
  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
    handle_.promise().awaiting = awaiting;
    return handle_;
  }
  T await_resume() {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    return std::move(*handle_.promise().value);
  }

 private:
  Handle handle_{};
};

}  // namespace rondo::rendezvous::test
