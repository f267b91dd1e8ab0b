// SPDX-License-Identifier: Apache-2.0
// How two ranks with a core each share what calls of one kind copy: who took longer does less of the next. Cores are
// seldom equally fast, and to copy from or to a root costs the root something else than the other. Both ranks are told
// the same times and reckon in whole numbers, so they share alike.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {

class Balance {
 public:
  static constexpr int kParts = 64;  // of a block

  // So many parts of each block more than without it are the first rank's to copy, or fewer.
  int shift() const { return shift_; }

  // The latest call, until each had done its own. costs: to do anything for the other takes a call of the kernel more.
  void took(double first_us, double second_us, bool costs) {
    using namespace threshold;
    const std::int64_t first = nanoseconds(first_us), second = nanoseconds(second_us);
    const std::int64_t ahead = kWhole * (second - first) / std::max({first, second, std::int64_t{1}});
    ahead_ += std::clamp(ahead, -kMostAhead, kMostAhead) - ahead_ / kBalancedCalls;
    if (std::abs(ahead_) < (costs && shift_ == 0 ? kWorthFirstShift : kWorthShift) * kBalancedCalls) return;
    shift_ = std::clamp(shift_ + (ahead_ > 0 ? kShiftStep : -kShiftStep), -kParts / 2, kParts / 2);
    ahead_ = 0;
  }

 private:
  static constexpr std::int64_t kWhole = 1024;  // a call's time
  static std::int64_t nanoseconds(double us) { return static_cast<std::int64_t>(us * 1000); }

  std::int64_t ahead_ = 0;  // the first rank, in the latest calls together
  int shift_ = 0;
};

}  // namespace rondo::comm
