// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/hooks.hpp"

#include <utility>
#include <vector>

namespace rondo::torch_backend {

void Hooks::add(std::int64_t id, c10d::CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  hooks_[id] = std::make_shared<c10d::CompletionHook>(std::move(hook));
  has_hooks_ = true;
}

void Hooks::remove(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  hooks_.erase(id);
  has_hooks_ = !hooks_.empty();
}

void Hooks::completed(const c10d::CompletionHookArgs& args) {
  if (!has_hooks_) return;
  std::vector<std::shared_ptr<c10d::CompletionHook>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : hooks_) all.push_back(hook);
  }
  for (const auto& hook : all) (*hook)(args);
}

void Hooks::set(OnCompletion hook) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!on_completion_, "rondo: the group has an on-completion hook already");
  on_completion_ = std::make_shared<OnCompletion>(std::move(hook));
  has_on_completion_ = true;
}

void Hooks::completed(const c10d::WorkInfo& info) {
  std::shared_ptr<OnCompletion> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = on_completion_;
  }
  if (hook) (*hook)(std::make_shared<c10d::WorkInfo>(info));
}

void Hooks::begun() {
  const std::lock_guard lock(mutex_);
  ++pending_;
}

void Hooks::ended() {
  const std::lock_guard lock(mutex_);
  if (--pending_ == 0) none_pending_.notify_all();
}

void Hooks::wait_for_all() {
  std::unique_lock lock(mutex_);
  none_pending_.wait(lock, [this] { return pending_ == 0; });
}

}  // namespace rondo::torch_backend
