// SPDX-License-Identifier: Apache-2.0
// How long calls of one kind took, by the two ways that they can go, and which one the next call takes. All ranks are
// told the same times, so they choose alike.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {

class WayTimes {
 public:
  enum class Way : std::uint8_t { rings, copy };

  // Of the call that now meets. At first the way that promises to be faster; when its calls have reached their speed, a
  // few of the other, in a row, since each finds in the caches what the one before left there, and of the first again,
  // so that what disturbed a few decides nothing; then what took less, until it takes longer than the other did, or for
  // long, when both are tried again.
  Way next(bool copy_promises) {
    if (phase_ == Phase::first && copy_promises) way_ = Way::copy;
    if (is_over()) turn();
    ++calls_;
    return way_;
  }
  // Instead of next(), of copies that need not meet for their own sake: whether it is one of many in a row, of which
  // the times of a few will do. These meet.
  bool goes_on() {
    const bool in_a_row = phase_ == Phase::first || phase_ == Phase::chosen;
    const bool goes = way_ == Way::copy && in_a_row && calls_ % threshold::kCallsPerTold != 0 && !is_over();
    if (goes) ++calls_;
    return goes;
  }
  bool copied() const { return way_ == Way::copy; }  // the latest
  // Calls of such a kind meet. Of others, which go through the rings, most do not.
  bool meets() const { return way_ == Way::copy || phase_ == Phase::other || phase_ == Phase::again; }
  // The latest call that met.
  void took(float us) { times().add(us); }

 private:
  enum class Phase : std::uint8_t { first, other, again, chosen };
  static constexpr std::size_t kKept = 5;

  // The median of the latest five, of an even number the lower one: the first calls touch pages that nobody has
  // touched, and what disturbs a call makes it longer.
  class Times {
   public:
    void add(float us) {
      latest_[count_++ % kKept] = us;
      const auto& [a, b, c, d, e] = latest_;
      const float low = std::max(std::min(a, b), std::min(c, d)), high = std::min(std::max(a, b), std::max(c, d));
      us_ = std::max(std::min(low, high), std::min(std::max(low, high), e));
    }
    float us() const { return us_; }

   private:
    static constexpr float kAbove = std::numeric_limits<float>::infinity(), kBelow = -kAbove;
    std::array<float, kKept> latest_{kAbove, kAbove, kBelow, kAbove, kBelow};  // as many above as below, or one fewer
    std::size_t count_ = 0;
    float us_ = 0;
  };

  Times& times() { return way_ == Way::rings ? rings_ : copy_; }
  bool is_over() const {
    const bool copies = way_ == Way::copy;
    const auto [own_us, other_us] = copies ? std::pair(copy_.us(), rings_.us()) : std::pair(rings_.us(), copy_.us());
    const auto is_slower = [&, own = own_us, other = other_us](float times, std::size_t calls) {
      return calls_ >= calls && own > times * other;
    };
    switch (phase_) {
      case Phase::first:
        return calls_ >= (copies ? threshold::kFirstCopies : threshold::kFirstRings);
      case Phase::other:
        return calls_ >= (copies ? threshold::kTriedCopies : threshold::kTriedRings) ||
               (copies ? is_slower(threshold::kCopyLost, kKept)
                       : is_slower(threshold::kRingsLost, threshold::kLeastTriedRings));
      case Phase::again:
        return calls_ >= (copies ? threshold::kTriedCopies : threshold::kTriedRings);
      case Phase::chosen:
        break;
    }
    return calls_ >= (copies ? threshold::kKeptCopies : threshold::kKeptRings) || is_slower(threshold::kWorse, kKept);
  }
  void turn() {
    calls_ = 0;
    if (phase_ == Phase::again) {
      phase_ = Phase::chosen;
      way_ = copy_.us() < threshold::kWorthCopy * rings_.us() ? Way::copy : Way::rings;
    } else {
      phase_ = phase_ == Phase::other ? Phase::again : Phase::other;
      way_ = way_ == Way::rings ? Way::copy : Way::rings;
    }
  }

  Times rings_, copy_;
  std::size_t calls_ = 0;  // of this phase, that met
  Phase phase_ = Phase::first;
  Way way_ = Way::rings;
};

}  // namespace rondo::comm
