// SPDX-License-Identifier: Apache-2.0
// Whom a group tells of calls that have ended well: PyTorch's flight recorder, and hooks of users.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/Hooks.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace rondo::torch_backend {

// Any thread may call it. No hook runs with its lock held.
class Hooks {
 public:
  using OnCompletion = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  void add(std::int64_t id, c10d::CompletionHook hook);
  void remove(std::int64_t id);
  void completed(const c10d::CompletionHookArgs& args);  // calls them, in this thread

  // A user's code: for one of the group's own threads. Set once, before the calls that it is about.
  void set(OnCompletion hook);
  bool has_on_completion() const { return has_on_completion_; }
  void completed(const c10d::WorkInfo& info);
  // The calls that the user's hook is about, from their start to the end of the hook.
  void begun();
  void ended();
  void wait_for_all();

 private:
  std::mutex mutex_;  // of all below
  std::map<std::int64_t, std::shared_ptr<c10d::CompletionHook>> hooks_;
  std::shared_ptr<OnCompletion> on_completion_;
  std::atomic<bool> has_hooks_ = false, has_on_completion_ = false;
  std::uint64_t pending_ = 0;
  std::condition_variable none_pending_;
};

}  // namespace rondo::torch_backend
