// SPDX-License-Identifier: Apache-2.0
// Whom a failure blames, as it lies in shared memory and goes between nodes; see Error.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo::comm {

struct Culprits {
  static constexpr std::size_t kMost = 16;  // the first of them; an error that blames more says so in its sentence

  std::int32_t one = -1;  // Error::culprit()
  std::uint32_t count = 0;
  std::array<std::int32_t, kMost> ranks{};  // Error::culprits()

  Culprits() = default;
  Culprits(int culprit) : one(culprit) {
    if (culprit >= 0) ranks[count++] = culprit;
  }
  Culprits(int culprit, std::span<const int> all) : one(culprit) {
    count = static_cast<std::uint32_t>(std::min(all.size(), kMost));
    std::copy_n(all.begin(), count, ranks.begin());
  }
  std::vector<int> list() const {
    return {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, kMost))};
  }
};

}  // namespace rondo::comm
