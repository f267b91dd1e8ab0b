// SPDX-License-Identifier: Apache-2.0
// The threads that run asynchronous calls, shared by all communicators of the process: one for each that has calls to
// run, so that a call that waits holds up its own communicator alone. A thread without work stays for a while.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rondo::comm {

class Engine;

class EnginePool {
 public:
  EnginePool() = default;
  ~EnginePool();  // joins all; every engine has ended
  EnginePool(const EnginePool&) = delete;
  EnginePool& operator=(const EnginePool&) = delete;

  static std::shared_ptr<EnginePool> of_process();

  void attend(Engine& engine);  // its loop, on a thread of the pool; std::system_error: there is none to be had

 private:
  struct Worker {
    Engine* engine = nullptr;  // guarded by the pool's mutex; null: idle
    bool ended = false;        // guarded too: its thread touches nothing any more
    std::condition_variable changed{};
    std::thread thread{};
  };
  void work(Worker& worker);
  void bury_ended();

  std::mutex mutex_;
  bool ending_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;  // the latest last, which goes on first
};

}  // namespace rondo::comm
