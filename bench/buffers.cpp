// SPDX-License-Identifier: Apache-2.0
#include "bench/buffers.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace rondo::bench {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kAlignment = 4096;
constexpr std::byte kPoison{0xA5};

}  // namespace

void GuardedBuffer::Free::operator()(void* memory) const { std::free(memory); }

GuardedBuffer::GuardedBuffer(Communicator& communicator, std::size_t bytes, bool window) : bytes_(bytes) {
  const std::size_t whole = (bytes + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  if (window) {
    window_ = communicator.allocate<std::byte>(whole);
    data_ = window_.data();
    return;
  }
  heap_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
  if (heap_ == nullptr) throw std::bad_alloc();
  data_ = heap_.get();
}

void GuardedBuffer::poison() const { std::memset(data_, std::to_integer<int>(kPoison), bytes_ + kGuardBytes); }

std::size_t GuardedBuffer::count_touched_guard_bytes() const {
  std::size_t touched = 0;
  for (std::size_t i = 0; i < kGuardBytes; ++i) touched += data_[bytes_ + i] != kPoison;
  return touched;
}

}  // namespace rondo::bench
