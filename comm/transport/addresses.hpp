// SPDX-License-Identifier: Apache-2.0
// Where a rank listens for its peers, and how that travels through the store.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/transport/handshake.hpp"

namespace rondo {

// One address and port, as the kernel wants it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// nullopt when `text` is neither an IPv4 nor an IPv6 address.
std::optional<SocketAddress> parse_address(const std::string& text, std::uint16_t port);
std::string to_string(const SocketAddress& address);  // "10.0.0.1:4000", "[fd00::1]:4000"

// Of the abstract socket that is called by `id`: nothing on disk, gone with its last owner.
struct UnixAddress {
  sockaddr_un storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
UnixAddress abstract_address(const MeetingId& id);

struct Listeners {
  std::vector<Fd> sockets;  // one per address, non-blocking
  std::uint16_t port = 0;
  std::vector<SocketAddress> addresses;
};
// Listens on every address (none: loopback) that this machine has, on one and the same port, from the range if there is
// one.
Listeners listen_on(const std::vector<std::string>& addresses, std::uint16_t first_port, std::uint16_t last_port);

struct Advertisement {
  MeetingId id{};
  std::vector<SocketAddress> addresses;  // most preferred first
};
std::vector<std::byte> encode(const Advertisement& advertisement);
// corrupt_message naming `rank` when the bytes are not an advertisement.
Advertisement decode_advertisement(std::span<const std::byte> bytes, int rank);

}  // namespace rondo
