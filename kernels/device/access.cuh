// SPDX-License-Identifier: Apache-2.0
// The user's memory, whose alignment nobody promises: words of 8 and vectors of 16 bytes, by the widest accesses that
// address and length allow. `left`: bytes of the buffer from p on; nothing beyond them is touched, it reads as zero.
#pragma once
#include "kernels/device/seam.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

template <class U>
RONDO_DEVICE std::uint64_t load_parts(const std::byte* p, unsigned bytes) {
  std::uint64_t word = 0;
  for (unsigned i = 0; i < bytes; i += sizeof(U)) word |= static_cast<std::uint64_t>(load<U>(p + i)) << (8 * i);
  return word;
}
template <class U>
RONDO_DEVICE void store_parts(std::byte* p, unsigned bytes, std::uint64_t word) {
  for (unsigned i = 0; i < bytes; i += sizeof(U)) store<U>(p + i, static_cast<U>(word >> (8 * i)));
}

// The width that divides both, up to 8.
RONDO_DEVICE unsigned common_width(const std::byte* p, unsigned bytes) {
  const auto both = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)) | bytes | 8;
  return both & (0u - both);
}
RONDO_DEVICE bool is_aligned(const std::byte* p, unsigned to) {
  return (reinterpret_cast<std::uintptr_t>(p) & (to - 1)) == 0;
}

// 1 to 8 bytes. Functions of their own: the slow path, once in a kernel.
RONDO_DEVICE_CALL std::uint64_t load_narrow(const std::byte* p, unsigned bytes) {
  switch (common_width(p, bytes)) {
    case 8:
      return load<std::uint64_t>(p);
    case 4:
      return load_parts<std::uint32_t>(p, bytes);
    case 2:
      return load_parts<std::uint16_t>(p, bytes);
    default:
      return load_parts<std::uint8_t>(p, bytes);
  }
}
RONDO_DEVICE_CALL void store_narrow(std::byte* p, unsigned bytes, std::uint64_t word) {
  switch (common_width(p, bytes)) {
    case 8:
      return store<std::uint64_t>(p, word);
    case 4:
      return store_parts<std::uint32_t>(p, bytes, word);
    case 2:
      return store_parts<std::uint16_t>(p, bytes, word);
    default:
      return store_parts<std::uint8_t>(p, bytes, word);
  }
}

RONDO_DEVICE std::uint64_t load_word(const std::byte* p, unsigned left) {
  if (left >= 8 && is_aligned(p, 8)) return load<std::uint64_t>(p);
  return load_narrow(p, left < 8 ? left : 8);
}
RONDO_DEVICE void store_word(std::byte* p, unsigned left, std::uint64_t word) {
  if (left >= 8 && is_aligned(p, 8)) return store<std::uint64_t>(p, word);
  store_narrow(p, left < 8 ? left : 8, word);
}

RONDO_DEVICE u64x2 load_vector(const std::byte* p, unsigned left) {
  if (left >= 16 && is_aligned(p, 16)) return load<u64x2>(p);
  return {load_narrow(p, left < 8 ? left : 8), left > 8 ? load_narrow(p + 8, left < 16 ? left - 8 : 8) : 0};
}
RONDO_DEVICE void store_vector(std::byte* p, unsigned left, u64x2 vector) {
  if (left >= 16 && is_aligned(p, 16)) return store<u64x2>(p, vector);
  store_narrow(p, left < 8 ? left : 8, vector.x);
  if (left > 8) store_narrow(p + 8, left < 16 ? left - 8 : 8, vector.y);
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
