// SPDX-License-Identifier: Apache-2.0
#include "comm/board/store_choice.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace rondo::comm {
namespace {

using kernels::Stores;

constexpr std::size_t kLeastBytes = 1 << 10;  // below, always through the caches
constexpr std::uint32_t kTrials = 3;          // of each kind, of which the fastest counts: nobody interrupted it
constexpr std::uint32_t kPeriod = 1024;
// What was written past the caches is read so much slower, in units of what writing it so takes: the reader's time is
// not measured. With cores that share a cache, 64 KiB are written twice as fast past it and read three times as slowly.
constexpr double kPenalty = 3.0;

}  // namespace

StoreChoice::Class* StoreChoice::class_of(std::array<Class, kClasses>& classes, std::size_t bytes) {
  if (bytes < kLeastBytes) return nullptr;
  const auto index = static_cast<std::size_t>(std::bit_width(bytes / kLeastBytes)) - 1;
  return &classes[std::min(index, kClasses - 1)];
}

kernels::Stores StoreChoice::next(std::size_t bytes) {
  timed_class_ = class_of(classes_, bytes);
  timed_ = timed_class_ != nullptr && timed_class_->turn < 2 * kTrials;
  if (timed_class_ == nullptr) return Stores::plain;
  if (timed_) return timed_class_->turn < kTrials ? Stores::plain : Stores::streaming;
  if (++timed_class_->turn == kPeriod) timed_class_->turn = 0;
  return timed_class_->chosen;
}

void StoreChoice::took(std::uint64_t ticks, std::size_t bytes) {
  Class& timed = *timed_class_;
  if (timed.turn == 0) timed.best.fill(std::numeric_limits<double>::infinity());
  double& best = timed.best[timed.turn < kTrials ? 0 : 1];
  best = std::min(best, static_cast<double>(ticks) / static_cast<double>(bytes));
  if (++timed.turn == 2 * kTrials) {
    timed.chosen = timed.best[0] > timed.best[1] * (1 + kPenalty) ? Stores::streaming : Stores::plain;
  }
}

}  // namespace rondo::comm
