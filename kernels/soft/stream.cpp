// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/stream.hpp"

#include "kernels/soft/device.hpp"
#include "kernels/thread.hpp"

namespace rondo::soft {

Stream::~Stream() {
  drop();
  join();
}

void Stream::join() {
  if (thread_.joinable()) thread_.join();
}

Ticket Stream::push(Operation operation) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("rondo-stream", [this] { work(); });
  queue_.push_back(std::move(operation));
  more_.notify_one();
  return {timeline_, ++pushed_};
}

Ticket Stream::tail() const {
  const std::lock_guard lock(mutex_);
  return {timeline_, pushed_};
}

void Stream::finish() {
  const std::lock_guard lock(mutex_);
  finishing_ = true;
  more_.notify_one();
}

void Stream::drop() {
  timeline_->close();
  const std::lock_guard lock(mutex_);
  dropping_ = true;
  more_.notify_one();
}

bool Stream::has_finished() const {
  const std::lock_guard lock(mutex_);
  return ended_ || !thread_.joinable();
}

bool Stream::is_dropping() const {
  const std::lock_guard lock(mutex_);
  return dropping_;
}

bool Stream::take(Operation& operation) {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return dropping_ || finishing_ || !queue_.empty(); });
  if (dropping_ || queue_.empty()) {
    std::deque<Operation> dropped;
    dropped.swap(queue_);
    ended_ = true;
    lock.unlock();  // an operation may hold a stream, or the user's object
    return false;
  }
  operation = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

// The next operation, where it is there already, may begin early, and waits for no other stream.
bool Stream::take_early(Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (dropping_ || queue_.empty() || !queue_.front().work.may_begin_early) return false;
  for (const Ticket& ticket : queue_.front().after) {
    if (!ticket.is_done()) return false;
  }
  operation = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::run(const Operation& operation, const std::uint32_t* ended) const {
  if (operation.work.run && !device_.has_failed() && !is_dropping()) operation.work.run(ended);
}

void Stream::work() {
  Operation operation, next;
  for (std::uint64_t number = 1; take(operation); ++number) {
    for (const Ticket& ticket : operation.after) ticket.wait();
    std::uint32_t ended = 0;
    std::thread beside;
    if (operation.work.lets_next_begin && take_early(next)) {
      beside = start_thread("rondo-early", [&] { run(next, &ended); });
    }
    run(operation, nullptr);
    operation = {};  // before anybody hears of it: what it held is gone by then
    timeline_->finish(number);
    if (!beside.joinable()) continue;
    __atomic_store_n(&ended, 1u, __ATOMIC_RELEASE);
    beside.join();
    next = {};
    timeline_->finish(++number);
  }
}

}  // namespace rondo::soft
