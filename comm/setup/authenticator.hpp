// SPDX-License-Identifier: Apache-2.0
// Proves that both ends of a connection belong to the same job. Owned by comm, implemented by rendezvous (HMAC).
#pragma once
#include <array>
#include <cstddef>
#include <span>

namespace rondo {

class Authenticator {
 public:
  using Mac = std::array<std::byte, 32>;
  virtual ~Authenticator() = default;
  virtual Mac sign(std::span<const std::byte> message) const = 0;
  virtual void random(std::span<std::byte> out) const = 0;
  bool verify(std::span<const std::byte> message, const Mac& mac) const {  // in constant time
    const Mac expected = sign(message);
    unsigned difference = 0;
    for (std::size_t i = 0; i < mac.size(); ++i) difference |= std::to_integer<unsigned>(expected[i] ^ mac[i]);
    return difference == 0;
  }
};

}  // namespace rondo
