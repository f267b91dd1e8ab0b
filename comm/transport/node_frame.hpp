// SPDX-License-Identifier: Apache-2.0
// The leader's word to the followers of its node.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// What the leader says: here are `count` descriptors; or how the meeting ended.
struct NodeFrame {
  enum class Kind : std::uint8_t { descriptors, complete, missing, lost };
  static constexpr std::size_t kMaxRanks = 16;
  static constexpr std::size_t kBytes = 5 + 4 * kMaxRanks;
  Kind kind = Kind::complete;
  std::uint32_t count = 0;  // of descriptors, or of ranks missing or lost
  std::vector<int> ranks;   // the first kMaxRanks of those

  std::array<std::byte, kBytes> encode() const;
  static NodeFrame decode(std::span<const std::byte> bytes);
  [[noreturn]] void raise(int rank, const std::string& name) const;
};

}  // namespace rondo
