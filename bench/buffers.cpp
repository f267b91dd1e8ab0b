// SPDX-License-Identifier: Apache-2.0
#include "bench/buffers.hpp"

#include <algorithm>

namespace rondo::bench {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kPoison{0xA5};
constexpr std::byte kOrdinary{0x40};

}  // namespace

GuardedBuffer::GuardedBuffer(Site& site, Communicator& communicator, std::size_t bytes, int sets, bool window)
    : site_(site),
      bytes_(bytes),
      stride_((bytes + kGuardBytes + Site::kAlignment - 1) / Site::kAlignment * Site::kAlignment),
      sets_(sets),
      memory_(nullptr, {&site}) {
  const std::size_t whole = stride_ * static_cast<std::size_t>(sets);
  if (window) {
    window_ = communicator.allocate<std::byte>(whole);
    data_ = window_.data();
  } else {
    memory_ = site.allocate(whole);
    data_ = memory_.get();
  }
}

void GuardedBuffer::make_ordinary() const { site_.fill(data_, kOrdinary, stride_ * static_cast<std::size_t>(sets_)); }
void GuardedBuffer::poison(int set) const { site_.fill(data(set), kPoison, bytes_ + kGuardBytes); }

std::size_t GuardedBuffer::count_touched_guard_bytes(int set) const {
  const std::byte* guard = site_.read(data(set) + bytes_, kGuardBytes);
  return static_cast<std::size_t>(std::count_if(guard, guard + kGuardBytes, [](std::byte b) { return b != kPoison; }));
}

}  // namespace rondo::bench
