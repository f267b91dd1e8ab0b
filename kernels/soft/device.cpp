// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/device.hpp"

#include "kernels/soft/settings.hpp"

namespace rondo::soft {

bool BlockBudget::take(unsigned blocks, const std::atomic<bool>& cancel) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = next_turn_++;
  if (turn_ != mine || free_ < blocks) ++shortages_;
  changed_.wait(lock, [&] { return cancel.load() || (turn_ == mine && free_ >= blocks); });
  if (cancel.load()) return false;
  free_ -= blocks;
  ++turn_;
  changed_.notify_all();
  return true;
}

void BlockBudget::give_back(unsigned blocks) {
  const std::lock_guard lock(mutex_);
  free_ += blocks;
  changed_.notify_all();
}

std::uint64_t kernels_short_of_blocks() { return BlockBudget::shortages(); }

void BlockBudget::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace rondo::soft
