// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/completer.hpp"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>

namespace rondo::torch_backend {
namespace {

using Job = std::function<void()>;

constexpr std::chrono::seconds kStuck{1};  // how long a job may hold up those behind it

thread_local int thread_depth = 0;

// Nobody is above a job to catch what it throws.
void run(const Job& job) {
  try {
    job();
  } catch (const std::exception& error) {
    LOG(ERROR) << "rondo: a callback of a future threw: " << error.what();
  }
}

// Ends threads that have nothing to do any more. One that is the caller's own ends later, and is joined by the next who
// comes here.
void end(std::vector<std::thread> threads) {
  struct Late {
    std::mutex mutex;
    std::vector<std::thread> threads;
  };
  static auto& late = *new Late;  // never destroyed: the last may be running still
  {
    const std::lock_guard lock(late.mutex);
    for (std::thread& thread : std::exchange(late.threads, {})) threads.push_back(std::move(thread));
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() != std::this_thread::get_id()) {
      thread.join();
    } else {
      const std::lock_guard lock(late.mutex);
      late.threads.push_back(std::move(thread));
    }
  }
}

struct Lane {
  std::deque<Job> jobs;
  std::condition_variable changed;
  int threads = 0, unused = 0, running = 0;
  bool has_standby = false;  // a thread that looks whether those that run are stuck
  std::uint64_t taken = 0;
};

}  // namespace

struct Completer::State : std::enable_shared_from_this<State> {
  const pid_t process = ::getpid();
  std::mutex mutex;  // of all below
  std::map<int, Lane> lanes;
  std::vector<std::thread> threads;
  bool is_closing = false, is_closed = false;

  // With the lock held, as are all below: somebody will see to the lane's jobs. False: no thread can be had.
  bool attend(int depth, Lane& lane) {
    if (is_closed) return false;
    if (lane.jobs.empty() || lane.has_standby) return true;
    if (lane.unused > 0) {
      lane.changed.notify_one();
      return true;
    }
    try {
      threads.emplace_back([self = shared_from_this(), depth] { self->work(depth); });
      ++lane.threads;
    } catch (const std::system_error&) {
      return lane.threads > 0;
    }
    return true;
  }

  // False: those that run have gone on meanwhile.
  static bool is_stuck(std::unique_lock<std::mutex>& lock, Lane& lane) {
    const auto before = lane.taken;
    lane.has_standby = true;
    const bool moved = lane.changed.wait_for(lock, kStuck, [&] { return lane.taken != before || lane.running == 0; });
    lane.has_standby = false;
    return !moved;
  }

  void work(int depth) {
    thread_depth = depth + 1;
    std::unique_lock lock(mutex);
    Lane& lane = lanes[depth];
    for (;;) {
      ++lane.unused;
      lane.changed.wait(lock,
                        [&] { return lane.jobs.empty() ? is_closing : (lane.running == 0 || !lane.has_standby); });
      --lane.unused;
      if (lane.jobs.empty()) {
        --lane.threads;
        return;
      }
      if (lane.running > 0 && !is_stuck(lock, lane)) continue;
      Job job = std::move(lane.jobs.front());
      lane.jobs.pop_front();
      ++lane.taken;
      ++lane.running;
      attend(depth, lane);
      if (is_closing) lane.changed.notify_all();
      lock.unlock();
      run(job);
      job = nullptr;  // with what it holds, whose end may need Python
      lock.lock();
      --lane.running;
    }
  }
};

Completer::Completer() : state_(std::make_shared<State>()) {}

void Completer::close() {
  if (!state_) return;
  if (state_->process != ::getpid()) {
    // Its threads are the parent's, and its locks may be held for ever here.
    [[maybe_unused]] auto* const left = new std::shared_ptr<State>(std::move(state_));
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->is_closing = true;
  for (auto& [depth, lane] : state_->lanes) lane.changed.notify_all();
  while (!state_->threads.empty()) {
    auto threads = std::exchange(state_->threads, {});
    lock.unlock();
    end(std::move(threads));
    lock.lock();
  }
  state_->is_closed = true;
}

int Completer::depth() { return thread_depth; }

void Completer::post(int depth, std::function<void()> job) {
  if (state_) {
    const std::lock_guard lock(state_->mutex);
    Lane& lane = state_->lanes[depth];
    lane.jobs.push_back(std::move(job));
    if (state_->attend(depth, lane)) return;
    job = std::move(lane.jobs.back());  // better here than never
    lane.jobs.pop_back();
  }
  run(job);
}

}  // namespace rondo::torch_backend
