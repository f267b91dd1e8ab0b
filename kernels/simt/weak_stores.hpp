// SPDX-License-Identifier: Apache-2.0
// Stores that their lane (or block) has made and nobody else sees yet.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/random.hpp"

namespace rondo::simt {

struct PendingStore {
  void* word;
  std::size_t bytes;  // 4 or 8
  std::uint64_t value;
  std::uint64_t number;  // in the order of the stores
};

class StoreBuffer {
 public:
  static constexpr std::size_t kLaneLimit = 8, kBlockLimit = 64;

  void reserve(std::size_t limit) { stores_.reserve(limit + 1); }
  bool empty() const { return stores_.empty(); }
  std::size_t size() const { return stores_.size(); }
  void put(void* word, std::size_t bytes, std::uint64_t value) { stores_.push_back({word, bytes, value, next_++}); }
  // One at random, or an older one to the same word.
  PendingStore take_any(Random& random);
  // The oldest to the word; false if there is none.
  bool take_oldest(const void* word, PendingStore* store);
  PendingStore take_oldest();
  // The newest value for the word; false if there is none.
  bool find(const void* word, std::size_t bytes, std::uint64_t* value) const;

 private:
  // The last one takes its place: no element is moved by memmove, which ThreadSanitizer would see.
  PendingStore take(std::size_t index);

  std::vector<PendingStore> stores_;
  std::uint64_t next_ = 0;
};

}  // namespace rondo::simt
