// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/addresses.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/system_error.hpp"
#include "comm/transport/sockets.hpp"
#include "comm/transport/wire.hpp"

namespace rondo {
namespace {

constexpr std::string_view kMagic = "rondo/a1";
constexpr std::size_t kMaxAddresses = 64;
constexpr int kEphemeralTries = 64;

std::uint16_t port_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port);
}

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  }
}

// Empty, with the reason: the port is taken on that address, or the address is not (or no more, or not yet) this
// machine's; throws for any other.
Fd try_listen(const SocketAddress& address, int& reason) {
  Fd fd = make_socket(address.family());
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family() == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  prepare_for_data(fd);  // accepted sockets inherit them
  if (::bind(fd.get(), address.get(), address.bytes) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) return fd;
  reason = errno;
  if (reason == EADDRINUSE || reason == EADDRNOTAVAIL) return {};
  throw_errno(fmt::format("cannot listen on {}", to_string(address)));
}

std::uint16_t bound_port(const Fd& fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    throw_errno("cannot ask for the port of a listening socket");
  }
  return port_of(address);
}

// All addresses that this machine has on `port` (0: on the one the first gets), or nothing when it is taken on one of
// them.
std::optional<Listeners> try_port(const std::vector<SocketAddress>& addresses, std::uint16_t port) {
  Listeners listeners;
  int reason = 0;
  for (SocketAddress address : addresses) {
    set_port(address, port);
    Fd fd = try_listen(address, reason);
    if (!fd && reason == EADDRINUSE) return std::nullopt;
    if (!fd) continue;
    if (port == 0) port = bound_port(fd);
    set_port(address, port);
    listeners.sockets.push_back(std::move(fd));
    listeners.addresses.push_back(address);
  }
  if (listeners.sockets.empty()) {
    errno = reason;
    throw_errno(fmt::format("cannot listen on {}", to_string(addresses.front())));
  }
  listeners.port = port;
  return listeners;
}

std::vector<SocketAddress> parse_all(const std::vector<std::string>& texts) {
  std::vector<SocketAddress> parsed;
  for (const std::string& text : texts) {
    const auto address = parse_address(text, 0);
    if (!address) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("'{}' is not an IP address to listen on for peers; give a numeric address", text));
    }
    const bool known = std::ranges::any_of(
        parsed, [&](const SocketAddress& other) { return to_string(other) == to_string(*address); });
    if (!known && parsed.size() < kMaxAddresses) parsed.push_back(*address);
  }
  return parsed;
}

std::vector<SocketAddress> loopback() {
  const auto v4 = parse_address("127.0.0.1", 0);
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe && ::bind(probe.get(), v4->get(), v4->bytes) == 0) return {*v4};
  return {*parse_address("::1", 0)};  // a host without IPv4
}

Listeners listen_in_range(const std::vector<SocketAddress>& addresses, std::uint16_t first, std::uint16_t last) {
  if (first == 0 && last == 0) {
    for (int attempt = 0; attempt < kEphemeralTries; ++attempt) {
      if (auto listeners = try_port(addresses, 0)) return std::move(*listeners);
    }
    throw Error(ErrorCode::system, fmt::format("found no port free on all {} addresses", addresses.size()));
  }
  if (first == 0 || last < first) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}-{} is not a port range", first, last));
  }
  for (unsigned port = first; port <= last; ++port) {
    if (auto listeners = try_port(addresses, static_cast<std::uint16_t>(port))) return std::move(*listeners);
  }
  throw Error(ErrorCode::system,
              fmt::format("every port from {} to {} is taken on {}; widen the port range for peer connections", first,
                          last, to_string(addresses.front())));
}

}  // namespace

std::optional<SocketAddress> parse_address(const std::string& text, std::uint16_t port) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.bytes = sizeof(sockaddr_in);
    return address;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  address.bytes = sizeof(sockaddr_in6);
  return address;
}

std::string to_string(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, port_of(address));
  }
  ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, text, sizeof(text));
  return fmt::format("[{}]:{}", text, port_of(address));
}

UnixAddress abstract_address(const MeetingId& id) {
  UnixAddress address;
  address.storage.sun_family = AF_UNIX;
  const std::string name = "rondo-" + hex(id);  // after the zero byte that makes it abstract
  std::ranges::copy(name, address.storage.sun_path + 1);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Listeners listen_on(const std::vector<std::string>& addresses, std::uint16_t first_port, std::uint16_t last_port) {
  return listen_in_range(addresses.empty() ? loopback() : parse_all(addresses), first_port, last_port);
}

std::vector<std::byte> encode(const Advertisement& advertisement) {
  WireWriter writer;
  writer.raw(kMagic).raw(advertisement.id);
  writer.number(static_cast<std::uint8_t>(advertisement.addresses.size()));
  for (const SocketAddress& address : advertisement.addresses) {
    const bool v4 = address.family() == AF_INET;
    writer.number(static_cast<std::uint8_t>(v4 ? 4 : 6)).number(port_of(address));
    if (v4) {
      writer.raw(std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 1)));
    } else {
      writer.raw(std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, 1)));
    }
  }
  return writer.bytes();
}

namespace {

std::optional<SocketAddress> read_address(WireReader& reader) {
  SocketAddress address;
  const auto family = reader.number<std::uint8_t>();
  const auto port = reader.number<std::uint16_t>();
  if (family == 4) {
    const auto raw = reader.raw<4>();
    address.storage.ss_family = AF_INET;
    address.bytes = sizeof(sockaddr_in);
    std::memcpy(&reinterpret_cast<sockaddr_in*>(&address.storage)->sin_addr, raw.data(), raw.size());
  } else if (family == 6) {
    const auto raw = reader.raw<16>();
    address.storage.ss_family = AF_INET6;
    address.bytes = sizeof(sockaddr_in6);
    std::memcpy(&reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_addr, raw.data(), raw.size());
  } else {
    return std::nullopt;
  }
  set_port(address, port);
  if (port == 0 || !reader.ok()) return std::nullopt;
  return address;
}

}  // namespace

Advertisement decode_advertisement(std::span<const std::byte> bytes, int rank) {
  WireReader reader(bytes);
  Advertisement advertisement;
  bool good = reader.expect(kMagic);
  advertisement.id = reader.raw<sizeof(MeetingId)>();
  const auto count = reader.number<std::uint8_t>();
  good = good && reader.ok() && count > 0 && count <= kMaxAddresses;
  for (int i = 0; good && i < count; ++i) {
    const auto address = read_address(reader);
    good = address.has_value();
    if (good) advertisement.addresses.push_back(*address);
  }
  if (!good || !reader.at_end()) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("rank {} advertised {} bytes that are no addresses of a peer; do all ranks run the same "
                            "version?",
                            rank, bytes.size()),
                rank);
  }
  return advertisement;
}

}  // namespace rondo
