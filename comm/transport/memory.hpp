// SPDX-License-Identifier: Apache-2.0
// Shared memory without names: an owner of a mapping, and sealed memfds, so nothing is left behind by a killed process
// and no peer can shrink what is mapped (which would end in SIGBUS).
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "comm/base/fd.hpp"

namespace rondo {

// Owns one mmap. Empty when default-constructed or moved from.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }
  void reset() noexcept;
  void keep(std::byte* data, std::size_t bytes) noexcept;  // a part of it, from a page on; the rest is unmapped

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Zeroed memory of exactly `bytes` that can neither shrink nor grow; `name` shows in /proc/PID/maps alone.
Fd make_sealed_memfd(const std::string& name, std::size_t bytes);
// Shared, readable and writable. corrupt_message when `fd` is not a sealed memfd of at least `bytes`. `alignment` of
// its start: a power of two; 0 is a page's.
Mapping map(const Fd& fd, std::size_t bytes, std::size_t alignment = 0);
// Shared with forked children and threads only; zeroed.
Mapping map_anonymous(std::size_t bytes, std::size_t alignment = 0);

}  // namespace rondo
