// SPDX-License-Identifier: Apache-2.0
// The little of OpenSSL that rendezvous uses. Every class has one owner and is used by one thread at a time.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

struct evp_mac_ctx_st;

namespace rondo::rendezvous {

using Digest = std::array<std::byte, 32>;

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// HMAC-SHA256, keyed once. Its state lies where OpenSSL keeps it, in reach of a core dump: what outlives a call and is
// derived from the secret is kept as KeptKey instead.
class Hmac {
 public:
  explicit Hmac(std::span<const std::byte> key);
  Hmac(const Hmac& other);  // same key
  Hmac(Hmac&&) noexcept = default;
  Hmac& operator=(Hmac&&) noexcept = default;
  ~Hmac();
  Digest sign(std::span<const std::byte> first, std::span<const std::byte> second = {});
  // What is a key itself, to where it shall lie.
  void sign_into(std::span<std::byte, 32> out, std::span<const std::byte> first,
                 std::span<const std::byte> second = {});
  Digest sign(std::string_view first, std::span<const std::byte> second = {}) { return sign(as_bytes(first), second); }

 private:
  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::unique_ptr<evp_mac_ctx_st, Free> context_;
};

Digest sha256(std::span<const std::byte> bytes);
void fill_random(std::span<std::byte> out);
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);
void wipe(std::span<std::byte> bytes);

}  // namespace rondo::rendezvous
