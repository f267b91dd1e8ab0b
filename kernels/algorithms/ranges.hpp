// SPDX-License-Identifier: Apache-2.0
// How messages are cut: into rounds (what one pass of an algorithm takes), and rounds into parts, one per rank. All
// ranks cut alike, so what is sent is what is expected. Counts need not divide; a part may be empty.
#pragma once
#include "kernels/algorithms/primitives.hpp"

namespace rondo::kernels {

// [0, count) in pieces of at most `step` elements: for (Range round : Rounds(count, step)).
class Rounds {
 public:
  constexpr Rounds(std::size_t count, std::size_t step) : count_(count), step_(step) {}
  class Iterator {
   public:
    constexpr Iterator(std::size_t offset, std::size_t count, std::size_t step)
        : offset_(offset), count_(count), step_(step) {}
    constexpr Range operator*() const { return {offset_, count_ - offset_ < step_ ? count_ - offset_ : step_}; }
    constexpr Iterator& operator++() {
      offset_ += (**this).count;
      return *this;
    }
    constexpr bool operator!=(const Iterator& other) const { return offset_ != other.offset_; }

   private:
    std::size_t offset_, count_, step_;
  };
  constexpr Iterator begin() const { return {0, count_, step_}; }
  constexpr Iterator end() const { return {count_, count_, step_}; }

 private:
  std::size_t count_, step_;
};

// Part `index` of `parts` nearly equal parts; the first count % parts of them are one element longer.
constexpr Range part(Range whole, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t base = whole.count / n;
  const std::size_t longer = whole.count % n;
  return {whole.offset + i * base + (i < longer ? i : longer), base + (i < longer ? 1 : 0)};
}

// Parts [first, last), which lie next to each other.
constexpr Range parts(Range whole, int parts, int first, int last) {
  const std::size_t offset = part(whole, parts, first).offset;
  const std::size_t end = last == parts ? whole.offset + whole.count : part(whole, parts, last).offset;
  return {offset, end - offset};
}

// What `round` (of a block's own elements) leaves of a block that may be shorter: possibly nothing.
constexpr Range clip(Range block, Range round) {
  if (round.offset >= block.count) return {block.offset + block.count, 0};
  const std::size_t left = block.count - round.offset;
  return {block.offset + round.offset, left < round.count ? left : round.count};
}

// The longest of the blocks in the output: all ranks make as many rounds.
constexpr std::size_t longest_recv_block(const Work& work) {
  std::size_t longest = work.recv_counts.empty() ? work.count : 0;
  for (const std::size_t count : work.recv_counts) longest = count > longest ? count : longest;
  return longest;
}
constexpr std::size_t longest_send_block(const Work& work) {
  std::size_t longest = work.send_counts.empty() ? work.count : 0;
  for (const std::size_t count : work.send_counts) longest = count > longest ? count : longest;
  return longest;
}

// The rank `steps` after `rank` in the cycle of ranks; `steps` from -size to size.
constexpr int ahead(const Work& work, int rank, int steps) { return (rank + steps + work.size) % work.size; }

constexpr Location input(std::size_t offset) { return {Buffer::input, offset}; }
constexpr Location output(std::size_t offset) { return {Buffer::output, offset}; }
constexpr Location scratch(std::size_t offset) { return {Buffer::scratch, offset}; }

}  // namespace rondo::kernels
