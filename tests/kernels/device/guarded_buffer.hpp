// SPDX-License-Identifier: Apache-2.0
// Memory for a kernel's input or output: at a chosen misalignment, poisoned, with guards on both sides. Under
// AddressSanitizer nothing follows the last byte, so that reading past the end is seen too.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#define RONDO_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RONDO_TEST_ASAN 1
#endif
#endif

namespace rondo::test {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeDeleter>;

inline AlignedBytes allocate_aligned(std::size_t bytes, std::size_t alignment = 128) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max<std::size_t>(bytes, 1)) != 0) std::abort();
  return AlignedBytes(static_cast<std::byte*>(memory));
}

class GuardedBuffer {
 public:
  static constexpr std::byte kPoison{0xCD}, kGuard{0xA7};

  // misalignment: bytes past a multiple of 128.
  explicit GuardedBuffer(std::size_t bytes = 0, std::size_t misalignment = 0)
      : bytes_(bytes), before_(kGuardBytes + misalignment), memory_(allocate_aligned(before_ + bytes + kAfter)) {
    std::fill_n(memory_.get(), before_, kGuard);
    poison();
    std::fill_n(data() + bytes_, kAfter, kGuard);
  }
  std::byte* data() const { return memory_.get() + before_; }
  std::size_t size() const { return bytes_; }
  void poison() { std::fill_n(data(), bytes_, kPoison); }
  bool guards_are_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(memory_.get(), data(), is_guard) &&
           std::all_of(data() + bytes_, data() + bytes_ + kAfter, is_guard);
  }

 private:
  static constexpr std::size_t kGuardBytes = 128;
#ifdef RONDO_TEST_ASAN
  static constexpr std::size_t kAfter = 0;
#else
  static constexpr std::size_t kAfter = kGuardBytes;
#endif
  std::size_t bytes_, before_;
  AlignedBytes memory_;
};

}  // namespace rondo::test
