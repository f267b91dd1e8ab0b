// SPDX-License-Identifier: Apache-2.0
// Makes connections unreadable for others, and unchangeable. Owned by comm, implemented by rendezvous (TLS).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace rondo {

// Over a connected socket that does not block, which stays the caller's and outlives this. One thread at a time.
// Calls return what send() and recv() would, an error's number negative: -EAGAIN when nothing can be done now, -EBADMSG
// from the first byte on that was changed on its way, that somebody without the key sent, or that is missing.
class SecureStream {
 public:
  virtual ~SecureStream() = default;  // says goodbye if the socket takes it at once

  // Before anything else, until it returns 0; -EAGAIN: call it again when the socket is readable. Reads nothing of what
  // the peer sends next.
  virtual long shake_hands() = 0;
  // How many bytes are on their way: some may lie here until flush() has returned 0.
  virtual long send(std::span<const std::byte> bytes) = 0;
  virtual long flush() = 0;
  // 0: the peer said goodbye. A connection that ends without is -ECONNRESET. -EAGAIN: the socket has been read empty.
  virtual long recv(std::span<std::byte> into) = 0;
};

class Encryption {
 public:
  virtual ~Encryption() = default;
  enum class End : std::uint8_t { connecting, accepting };
  // Both ends give the same `transcript`, what they have said to each other so far: the key is made from it, too.
  virtual std::unique_ptr<SecureStream> over(int socket, End end, std::span<const std::byte> transcript) const = 0;
};

}  // namespace rondo
