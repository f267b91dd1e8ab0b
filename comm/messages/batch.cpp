// SPDX-License-Identifier: Apache-2.0
#include "comm/messages/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "comm/base/duration.hpp"

namespace rondo::comm {
namespace {

thread_local bool in_callbacks = false;

void check_not_in_callback() {
  if (!in_callbacks) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of Work::on_done() waits for a message, which nobody would move meanwhile: start it with "
              "async() and give it a callback");
}

Batch::Clock::time_point later(Batch::Clock::time_point start, std::chrono::milliseconds timeout) {
  return timeout >= kForEver ? Batch::Clock::time_point::max() : start + timeout;
}

}  // namespace

Operation::Operation(const Call& call)
    : sends(call.collective == Collective::send),
      peer(call.root),
      tag(call.tag),
      dtype(call.dtype),
      count(call.count),
      bytes(call.count * size_of(call.dtype)),
      from(static_cast<const std::byte*>(call.send)),
      to(static_cast<std::byte*>(call.recv)),
      source(sends ? nullptr : call.source) {}

std::string Operation::describe() const {
  const std::string who = other() == kAnySource ? std::string("any rank") : fmt::format("rank {}", other());
  return fmt::format("{} of {} {} {} {}{}", sends ? "send" : "recv", count, name_of(dtype), sends ? "to" : "from", who,
                     tag == 0 ? "" : fmt::format(", tag {}", tag));
}

void Batch::begin(std::span<const Call> calls, std::chrono::milliseconds limit, Kind how) {
  operations.clear();
  for (const Call& call : calls) operations.emplace_back(call).batch = this;
  left = operations.size();
  kind = how;
  settled = reported = false;
  failure = nullptr;
  timeout = limit;
  started = {};
}

void Batch::mind_time(Clock::time_point now) {
  if (started != Clock::time_point{}) return;
  started = now;
  deadline = later(started, timeout);
}

void Batch::excuse(Clock::duration stood_still) {
  if (started == Clock::time_point{}) return;
  started += stood_still;
  deadline = later(started, timeout);
}

void Batch::wait() {
  std::unique_lock lock(mutex_);
  if (!done_) check_not_in_callback();
  finished_.wait(lock, [&] { return done_; });  // messages have a deadline of their own
  if (error_) std::rethrow_exception(error_);
}
bool Batch::wait_for(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  if (!done_ && duration.count() != 0) check_not_in_callback();
  if (!finished_.wait_for(lock, duration, [&] { return done_; })) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}
bool Batch::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}
std::exception_ptr Batch::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}
Work::Times Batch::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}
int Batch::source() {
  const std::lock_guard lock(mutex_);
  return done_ && !error_ && kind == Kind::one ? operations.front().from_rank : -1;
}
void Batch::on_done(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) return callbacks_.push_back(std::move(callback));
  }
  detail::tell(callback, error_);
}

void Batch::finish() {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = failure;
    times_ = {started, Clock::now()};
    callbacks.swap(callbacks_);
    finished_.notify_all();
  }
  for (const Callback& callback : callbacks) detail::tell(callback, error_);
}

Batch::Callbacks::Callbacks() : before_(std::exchange(in_callbacks, true)) {}
Batch::Callbacks::~Callbacks() { in_callbacks = before_; }

namespace {

class Both final : public detail::WorkState {
 public:
  Both(std::shared_ptr<detail::WorkState> one, std::shared_ptr<detail::WorkState> other)
      : parts_{std::move(one), std::move(other)} {}
  void wait() override {
    for (const auto& part : parts_) {  // buffers are in use until both are done
      try {
        part->wait();
      } catch (...) {
        if (!part->done()) throw;  // it was not waited for
      }
    }
    if (const auto first = error()) std::rethrow_exception(first);
  }
  bool wait_for(std::chrono::milliseconds duration) override {
    const auto until = std::chrono::steady_clock::now() + std::min(duration, kForEver);
    for (const auto& part : parts_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      try {
        if (!part->wait_for(std::max(left, std::chrono::milliseconds(0)))) return false;
      } catch (...) {
        if (!part->done()) throw;
      }
    }
    if (const auto first = error()) std::rethrow_exception(first);
    return true;
  }
  bool done() override { return parts_[0]->done() && parts_[1]->done(); }
  std::exception_ptr error() override {
    const auto first = parts_[0]->error();
    return !done() ? nullptr : first ? first : parts_[1]->error();
  }
  Work::Times times() override {
    const auto one = parts_[0]->times(), other = parts_[1]->times();
    if (!done()) return {};
    return {std::min(one.started, other.started), std::max(one.finished, other.finished)};
  }
  void on_done(Callback callback) override {
    struct Count {
      std::atomic<int> left{2};
      std::mutex mutex;
      std::exception_ptr error;
    };
    const auto count = std::make_shared<Count>();
    for (const auto& part : parts_) {
      part->on_done([count, callback](std::exception_ptr error) {
        {
          const std::lock_guard lock(count->mutex);
          if (!count->error) count->error = std::move(error);
        }
        if (--count->left == 0) callback(count->error);
      });
    }
  }

 private:
  std::shared_ptr<detail::WorkState> parts_[2];
};

}  // namespace

std::shared_ptr<detail::WorkState> both(std::shared_ptr<detail::WorkState> one,
                                        std::shared_ptr<detail::WorkState> other) {
  if (!one || !other) return one ? one : other;
  return std::make_shared<Both>(std::move(one), std::move(other));
}

}  // namespace rondo::comm
