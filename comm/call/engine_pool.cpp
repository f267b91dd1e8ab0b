// SPDX-License-Identifier: Apache-2.0
#include "comm/call/engine_pool.hpp"

#include <algorithm>
#include <chrono>

#include "comm/base/one_per_process.hpp"
#include "comm/call/engine.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

constexpr std::chrono::seconds kIdleLimit{5};  // what programs do between two calls is mostly shorter
constinit OnePerProcess<EnginePool> the_pool;

}  // namespace

std::shared_ptr<EnginePool> EnginePool::of_process() { return the_pool.get(); }

EnginePool::~EnginePool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& worker : workers_) worker->changed.notify_one();
  }
  for (const auto& worker : workers_) worker->thread.join();
}

void EnginePool::attend(Engine& engine) {
  const std::lock_guard lock(mutex_);
  bury_ended();
  if (!idle_.empty()) {
    Worker& worker = *idle_.back();
    idle_.pop_back();
    worker.engine = &engine;
    worker.changed.notify_one();
    return;
  }
  auto worker = std::make_unique<Worker>();
  worker->engine = &engine;
  workers_.reserve(workers_.size() + 1);
  idle_.reserve(workers_.size() + 1);
  worker->thread = start_thread("rondo-engine", [this, w = worker.get()] { work(*w); });
  workers_.push_back(std::move(worker));
}

// With the lock, which an ended thread has given back for the last time.
void EnginePool::bury_ended() {
  std::erase_if(workers_, [](const auto& worker) {
    if (worker->ended) worker->thread.join();
    return worker->ended;
  });
}

void EnginePool::work(Worker& worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Engine& engine = *worker.engine;
    lock.unlock();
    engine.loop();
    lock.lock();
    worker.engine = nullptr;
    idle_.push_back(&worker);
    worker.changed.wait_for(lock, kIdleLimit, [&] { return ending_ || worker.engine != nullptr; });
    if (worker.engine != nullptr) continue;
    std::erase(idle_, &worker);
    worker.ended = true;
    return;
  }
}

}  // namespace rondo::comm
