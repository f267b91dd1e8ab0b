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

  // Of the call that now meets: both in turn at first, then what takes less, and now and then the other one.
  Way next() {
    ++calls_;
    const bool in_turn = !prefers_copy() || !settled();
    const bool rings = in_turn ? calls_ % 2 == 1 : calls_ % kBetweenTrials == 0;
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
  static constexpr std::size_t kTrials = 8, kTrialsOfLong = 4;  // of each way
  static constexpr float kLongUs = 2000;
  static constexpr float kWorth = 0.95F;  // a copy needs a meeting that rings may do without

  bool settled() const {
    const std::size_t tried = std::min(rings_.count(), copy_.count());
    return tried >= kTrials || (tried >= kTrialsOfLong && rings_.us() + copy_.us() > kLongUs);
  }

  Times rings_, copy_;
  std::uint32_t calls_ = 0;
  Way latest_ = Way::rings;
};

}  // namespace rondo::comm
