// SPDX-License-Identifier: Apache-2.0
// Host memory of cudaHostAlloc: pages of its own with a guard page behind, zeroed.
#pragma once
#include <cstddef>
#include <optional>

namespace rondo::soft {

class PinnedPages {
 public:
  static std::optional<PinnedPages> allocate(std::size_t bytes);
  PinnedPages(PinnedPages&& other) noexcept;
  PinnedPages& operator=(PinnedPages&&) = delete;
  ~PinnedPages();
  std::byte* data() const { return start_; }

 private:
  PinnedPages(std::byte* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  std::byte* start_;
  std::size_t bytes_;
};

}  // namespace rondo::soft
