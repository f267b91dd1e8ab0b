// SPDX-License-Identifier: Apache-2.0
// How calls are started, and in whose turn.
#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "bindings/torch/backend.hpp"

namespace rondo::torch_backend {

Task RondoBackend::task(c10d::OpType type, std::string_view name, Milliseconds timeout, bool runs_async) const {
  return {.type = type, .name = std::string(name), .timeout = timeout_of(timeout), .runs_async = runs_async};
}

RondoBackend::WorkPtr RondoBackend::run(Task given) {
  auto task = std::make_shared<Task>(std::move(given));
  std::unique_lock lock(mutex_);
  const RondoWork::About about{.rank = getRank(),
                               .type = task->type,
                               .title = title_of(getBackendName(), task->name),
                               .sequence = ++sequence_,
                               .timeout = task->timeout,
                               .outputs = task->outputs,
                               .device = task->device};
  auto work = c10::make_intrusive<RondoWork>(about, task->inputs, works_);
  const bool is_on_device = !task->device.is_cpu();
  if (task->takes_source && !is_on_device) task->calls.front().source = work->source();
  if (task->takes_source && is_on_device) *work->source() = task->calls.front().root;
  if (coalescing_) {
    coalescing_->push_back({task, work});
    return work;
  }
  if (is_on_device) {
    lock.unlock();
    enqueue({{task, work}}, task->timeout);
    return work;
  }
  if (!task->is_message && !task->runs_async) {
    run_in_turn(lock, {task, work});
    return work;
  }
  Steps then;
  task->is_message ? start({{task, work}}, task->timeout, then) : start_in_turn({{task, work}}, task->timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  if (const auto error = work->failed_at_start()) std::rethrow_exception(error);
  return work;
}

// Whoever runs a call in its own thread does not hold the lock: what others start meanwhile, callbacks among them, has
// its turn behind it, and they go on.
void RondoBackend::start_in_turn(std::vector<Started> tasks, Milliseconds timeout, Steps& then) {
  if (!runs_here_) return start(std::move(tasks), timeout, then);
  deferred_.push_back({std::move(tasks), timeout});
}

void RondoBackend::run_in_turn(std::unique_lock<std::mutex>& lock, const Started& one) {
  if (runs_here_) {  // another thread's
    Steps none;
    start_in_turn({one}, one.task->timeout, none);
    lock.unlock();
    one.work->wait(kNoTimeout);
    return;
  }
  auto& comm = communicator();
  runs_here_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    auto within = comm.within(one.task->timeout);
    for (const Call& call : one.task->calls) within.submit(call);
    one.task->finish();
  } catch (...) {
    error = error_of(one.task->name, std::current_exception());
  }
  lock.lock();
  runs_here_ = false;
  Steps then;
  for (auto& [tasks, timeout] : std::exchange(deferred_, {})) start(std::move(tasks), timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  one.work->complete(error);
  if (error) std::rethrow_exception(error);
}

// With the lock held; what wakes others is left to `then`, for when it is free.
void RondoBackend::start(std::vector<Started> tasks, Milliseconds timeout, Steps& then) {
  std::vector<Call> calls;
  for (const Started& each : tasks) calls.insert(calls.end(), each.task->calls.begin(), each.task->calls.end());
  try {
    rondo::Work running;
    if (calls.size() == 1) {
      running = communicator().async(timeout).submit(calls.front());
    } else {
      Group group = communicator().group(timeout);
      for (const Call& call : calls) group.submit(call);
      running = group.start();
    }
    // The call holds what it works on, and nothing of this object, which may go first.
    then.push_back([running, tasks = std::move(tasks), rank = getRank()]() mutable {
      running.on_done([tasks = std::move(tasks), rank](const std::exception_ptr& error) { end(tasks, rank, error); });
    });
  } catch (...) {
    const std::exception_ptr error = error_of(tasks.front().task->name, std::current_exception());
    then.push_back([tasks, error] {
      for (const Started& each : tasks) each.work->fail_at_start(error);
    });
  }
}

void RondoBackend::end(const std::vector<Started>& tasks, int rank, const std::exception_ptr& error) {
  for (const Started& each : tasks) {
    std::exception_ptr told;
    try {
      if (error) std::rethrow_exception(error);
      each.task->finish();
    } catch (const Error& wrong) {
      told = exception_of(each.task->name, rank, wrong);
    } catch (...) {
      told = std::current_exception();
    }
    each.work->complete(told);
  }
}

void RondoBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  if (coalescing_) C10_THROW_ERROR(ValueError, "rondo: calls are being coalesced already");
  coalescing_.emplace();
}

RondoBackend::WorkPtr RondoBackend::endCoalescing() {
  std::unique_lock lock(mutex_);
  if (!coalescing_) C10_THROW_ERROR(ValueError, "rondo: no calls are being coalesced");
  auto tasks = std::move(*coalescing_);
  coalescing_.reset();
  if (tasks.empty()) return nullptr;
  Milliseconds timeout = tasks.front().task->timeout;
  auto whole = std::make_shared<Task>(
      Task{.type = c10d::OpType::COALESCED, .name = "coalesced", .timeout = timeout, .runs_async = true});
  whole->device = tasks.front().task->device;
  for (const Started& each : tasks) {
    if (each.task->device != whole->device) {
      C10_THROW_ERROR(ValueError, c10::str("rondo: calls on ", whole->device, " and on ", each.task->device,
                                           " cannot be coalesced"));
    }
    timeout = std::min(timeout, each.task->timeout);
    whole->outputs.insert(whole->outputs.end(), each.task->outputs.begin(), each.task->outputs.end());
  }
  const RondoWork::About about{.rank = getRank(),
                               .type = whole->type,
                               .title = title_of(getBackendName(), whole->name),
                               .sequence = ++sequence_,
                               .timeout = timeout,
                               .outputs = whole->outputs,
                               .device = whole->device};
  auto work = c10::make_intrusive<RondoWork>(about, whole->inputs, works_);
  tasks.push_back({whole, work});
  if (!whole->device.is_cpu()) {
    lock.unlock();
    enqueue(tasks, timeout);
    return work;
  }
  Steps then;
  start_in_turn(std::move(tasks), timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  if (const auto error = work->failed_at_start()) std::rethrow_exception(error);
  return work;
}

}  // namespace rondo::torch_backend
