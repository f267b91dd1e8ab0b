// SPDX-License-Identifier: Apache-2.0
// Frames. Plain (before authentication): u32 length, message. Sealed: u32 length, 16 bytes of HMAC, u64 request, body.
// The HMAC covers a counter of the direction, so a frame that is repeated, dropped or moved is noticed. Without a
// secret the seal is zeros and proves nothing. Numbers are little-endian; a length is checked before it is believed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/crypto.hpp"
#include "rendezvous/kept_key.hpp"

namespace rondo::rendezvous {

inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;  // of one key, or one rank's part of an exchange
inline constexpr std::size_t kMaxNameBytes = 256;                     // of keys, nodes, hosts
inline constexpr std::size_t kMaxHelloBytes = 256;
inline constexpr std::size_t kMaxServerHelloBytes = 1024;
inline constexpr std::size_t kMaxRequestBytes = 2 * kMaxValueBytes + 1024;     // compare_and_set carries two values
inline constexpr std::size_t kMaxReplyBytes = (std::size_t{64} << 20) + 4096;  // exchange: everybody's parts

// A body that may go to many connections; its digest is made once.
class Body {
 public:
  explicit Body(std::string bytes);
  const std::string& bytes() const { return bytes_; }
  std::span<const std::byte> signed_part() const;  // itself, or its digest when it is long

 private:
  std::string bytes_;
  std::optional<Digest> digest_;
};
using SharedBody = std::shared_ptr<const Body>;

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void set_limit(std::size_t limit_bytes) { limit_bytes_ = limit_bytes; }
  void feed(std::span<const std::byte> bytes);
  // What follows the length; valid until the next call of anything here. Error(corrupt_message) beyond the limit.
  std::optional<std::string_view> next();
  std::string take_rest();  // what has not been cut

 private:
  std::string buffer_;
  std::size_t consumed_ = 0, limit_bytes_;
};

std::string plain_frame(std::string_view message);

// One direction of an authenticated connection.
class Seal {
 public:
  Seal() = default;  // proves nothing
  explicit Seal(KeptKey key) : key_(std::move(key)) {}
  static constexpr std::size_t kHeadBytes = 4 + 16 + 8;

  // What goes before the body. Frames must be sent in the order of these calls.
  std::string head(std::uint64_t request, const Body& body);
  struct Opened {
    std::uint64_t request;
    std::string_view body;
  };
  Opened open(std::string_view frame);  // Error(corrupt_message) unless it is the next frame of the other side

 private:
  void sign(std::uint64_t request, std::span<const std::byte> part, std::span<std::byte, 16> out);
  std::optional<KeptKey> key_;
  std::uint64_t counter_ = 0;
};

}  // namespace rondo::rendezvous
