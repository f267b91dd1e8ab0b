// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/pinned_pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "kernels/soft/pages.hpp"
#include "kernels/soft/poison.hpp"

namespace rondo::soft {

std::optional<PinnedPages> PinnedPages::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) return std::nullopt;
  const std::size_t all = whole_pages(bytes) + kPage;
  void* start = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return std::nullopt;
  PinnedPages pages(static_cast<std::byte*>(start), bytes);
  if (mprotect(pages.start_ + all - kPage, kPage, PROT_NONE) != 0) return std::nullopt;
  poison(pages.start_ + bytes, whole_pages(bytes) - bytes);
  return pages;
}

PinnedPages::PinnedPages(PinnedPages&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)), bytes_(other.bytes_) {}

PinnedPages::~PinnedPages() {
  if (start_ == nullptr) return;
  unpoison(start_, whole_pages(bytes_));
  munmap(start_, whole_pages(bytes_) + kPage);
}

}  // namespace rondo::soft
