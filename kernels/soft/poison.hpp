// SPDX-License-Identifier: Apache-2.0
// Memory that AddressSanitizer reports when it is touched; nothing in other builds.
#pragma once
#include <cstddef>
#if defined(__SANITIZE_ADDRESS__)
#define RONDO_SOFT_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RONDO_SOFT_ASAN
#endif
#endif
#if defined(RONDO_SOFT_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace rondo::soft {

inline void poison([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
#if defined(RONDO_SOFT_ASAN)
  __asan_poison_memory_region(start, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
#if defined(RONDO_SOFT_ASAN)
  __asan_unpoison_memory_region(start, bytes);
#endif
}

}  // namespace rondo::soft
