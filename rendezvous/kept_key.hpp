// SPDX-License-Identifier: Apache-2.0
// 32 bytes that are a key, in memory that no core dump holds (MADV_DONTDUMP); wiped when they go. Copies are others.
// Any thread may make and destroy them.
#pragma once
#include <array>
#include <cstddef>
#include <utility>

#include <rondo/export.hpp>

namespace rondo::rendezvous {

class RONDO_API KeptKey {
 public:
  using Bytes = std::array<std::byte, 32>;

  KeptKey();  // zeros
  KeptKey(const KeptKey& other) : KeptKey() { *bytes_ = *other.bytes_; }
  KeptKey(KeptKey&& other) noexcept : bytes_(std::exchange(other.bytes_, nullptr)) {}
  KeptKey& operator=(KeptKey other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  // One that was moved from may be assigned to and destroyed.
  ~KeptKey();

  Bytes& operator*() { return *bytes_; }
  const Bytes& operator*() const { return *bytes_; }

 private:
  Bytes* bytes_;
};

}  // namespace rondo::rendezvous
