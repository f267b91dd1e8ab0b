// SPDX-License-Identifier: Apache-2.0
// The little of OpenSSL that rendezvous uses. Any thread.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace rondo::rendezvous {

using Digest = std::array<std::byte, 32>;

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// HMAC-SHA256 of one after the other. A key costs two blocks more than one that is set up already, and a connection has
// no state of OpenSSL's, a kilobyte for each direction; nothing of the key stays where a core dump would have it.
Digest hmac(std::span<const std::byte> key, std::span<const std::byte> first, std::span<const std::byte> second = {});
// What is a key itself, to where it shall lie.
void hmac_into(std::span<std::byte, 32> out, std::span<const std::byte> key, std::span<const std::byte> first,
               std::span<const std::byte> second = {});

Digest sha256(std::span<const std::byte> bytes);
void fill_random(std::span<std::byte> out);
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);
void wipe(std::span<std::byte> bytes);

}  // namespace rondo::rendezvous
