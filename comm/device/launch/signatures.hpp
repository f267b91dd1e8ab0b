// SPDX-License-Identifier: Apache-2.0
// Signatures as the kernels carry them: four words, of which comm alone knows what the third one holds.
#pragma once
#include "comm/call/signature.hpp"
#include "kernels/device/layout.hpp"

namespace rondo::comm::device {

constexpr kernels::device::DeviceSignature pack(const Signature& s) {
  const auto kind = static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.dtype) << 8 |
                    static_cast<std::uint64_t>(s.op) << 16 |
                    static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32;
  return {.sequence = s.sequence, .count = s.count, .kind = kind, .shape = s.shape};
}
constexpr Signature unpack(const kernels::device::DeviceSignature& s) {
  return {.sequence = s.sequence,
          .count = s.count,
          .collective = static_cast<Collective>(s.kind & 0xff),
          .dtype = static_cast<DataType>(s.kind >> 8 & 0xff),
          .op = static_cast<ReduceOp::Kind>(s.kind >> 16 & 0xff),
          .root = static_cast<std::int32_t>(s.kind >> 32),
          .shape = s.shape};
}

}  // namespace rondo::comm::device
