// SPDX-License-Identifier: Apache-2.0
// How long calls of one kind took, by the two ways that they can go, and which one the next call takes. All ranks are
// told the same times, so they choose alike.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo::comm {

class WayTimes {
 public:
  enum class Way : std::uint8_t { rings, copy };

  // Of the call that now meets. At first the way that promises to be faster; when its calls have reached their speed, a
  // few of the other (in a row: each finds in the caches what the one before left there); then what takes less, and now
  // and then the other one.
  Way next(bool copy_promises) {
    ++calls_;
    bool rings = calls_ % (prefers_copy() ? kBetweenTrials : 2) == 0;
    if (!settled()) rings = copy_promises == (first(copy_promises).count() >= trials(kTrials, kTrialsOfLong));
    latest_ = rings ? Way::rings : Way::copy;
    return latest_;
  }
  // Or may yet: calls of such a kind meet. Of others, which go through the rings, most do not even meet.
  bool prefers_copy() const { return !settled() || copy_.us() < kWorth * rings_.us(); }

  // The latest call that met.
  void took(float us) { (latest_ == Way::rings ? rings_ : copy_).add(us); }

 private:
  // The first calls touch pages that nobody has touched; what disturbs a call makes it longer.
  class Times {
   public:
    void add(float us) { latest_[count_++ % kKept] = us; }
    std::size_t count() const { return count_; }
    float us() const {
      if (count_ == 0) return 0;
      std::array<float, kKept> times = latest_;
      const std::size_t kept = std::min(count_, kKept);
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>((kept - 1) / 2);
      std::nth_element(times.begin(), middle, times.begin() + static_cast<std::ptrdiff_t>(kept));
      return *middle;
    }

   private:
    static constexpr std::size_t kKept = 5;
    std::array<float, kKept> latest_{};
    std::size_t count_ = 0;
  };

  static constexpr std::uint32_t kBetweenTrials = 256;
  static constexpr std::size_t kTrials = 16, kTrialsOfLong = 8, kOthers = 8, kOthersOfLong = 3;
  static constexpr float kLongUs = 1000;
  static constexpr float kWorth = 0.95F;  // a copy needs a meeting that rings may do without

  const Times& first(bool copy_promises) const { return copy_promises ? copy_ : rings_; }
  std::size_t trials(std::size_t of_short, std::size_t of_long) const {
    return std::max(rings_.us(), copy_.us()) > kLongUs ? of_long : of_short;
  }
  bool settled() const {
    const std::size_t more = std::max(rings_.count(), copy_.count());
    const std::size_t fewer = std::min(rings_.count(), copy_.count());
    return more >= trials(kTrials, kTrialsOfLong) && fewer >= trials(kOthers, kOthersOfLong);
  }

  Times rings_, copy_;
  std::uint32_t calls_ = 0;
  Way latest_ = Way::rings;
};

}  // namespace rondo::comm
