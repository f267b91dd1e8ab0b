// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/berth.hpp"

namespace rondo::comm::device {

int Berth::users() const {
  const std::lock_guard lock(mutex_);
  return users_;
}

bool Berth::is_in_graphs() const {
  const std::lock_guard lock(mutex_);
  return graphs_ != 0;
}

bool Berth::enter() {
  const std::lock_guard lock(mutex_);
  if (graphs_ != 0) return false;
  ++users_;
  return true;
}

void Berth::leave() {
  const std::lock_guard lock(mutex_);
  --users_;
}

bool Berth::hold_for_graph() {
  const std::lock_guard lock(mutex_);
  if (users_ > 1) return false;
  ++graphs_;
  return true;
}

void Berth::release_from_graph() {
  const std::lock_guard lock(mutex_);
  --graphs_;
}

void Berth::forget(const void* user) {
  const std::lock_guard lock(order_);
  if (latest_user_ != user) return;
  latest_ = nullptr;
  latest_user_ = nullptr;
}

}  // namespace rondo::comm::device
