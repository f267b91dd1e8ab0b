// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listen.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "comm/base/limits.hpp"
#include "rendezvous/interfaces.hpp"
#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  bool named = false;  // one of those that a name stands for
};

std::vector<Address> addresses_at(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  if (status != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("cannot listen on '{}': {}", host, ::gai_strerror(status)));
  }
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    address.named = address_text(address.storage) != host;
  }
  if (is_own_name(host)) {
    for (const std::string& other : network_addresses()) {
      addresses.push_back(addresses_at(other).front());
      addresses.back().named = true;
    }
  }
  return addresses;
}

in_port_t& port_of(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// errno is set when the descriptor is not there.
Fd listen_at(Address address, std::uint16_t port, std::chrono::milliseconds link_patience) {
  port_of(address.storage) = htons(port);
  Fd fd = make_socket(address.storage.ss_family);
  if (!fd) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  set_tcp_options(fd.get(), link_patience);  // accepted sockets inherit them
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(fd.get(), where, address.length) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) return fd;
  const int reason = errno;
  fd.reset();
  errno = reason;
  return fd;
}

std::uint16_t bound_port(int fd) {
  Address address;
  address.length = sizeof address.storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return ntohs(port_of(address.storage));
}

// A name may stand for more than this machine has, or had when its kernel was configured.
bool may_be_left_out(const Address& address, int reason) {
  return address.named && (reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT);
}

[[noreturn]] void refuse(const Address& address, std::uint16_t port, int reason) {
  const std::string limit = remedy_of(reason);
  const std::string sentence =
      fmt::format("cannot listen on {}: {}{}", endpoint_text(address_text(address.storage), port),
                  std::strerror(reason), limit.empty() ? "; choose another address or port" : limit);
  if (reason == EADDRINUSE) throw AddressInUse(ErrorCode::system, sentence);
  throw Error(ErrorCode::system, sentence);
}

// Nothing: a free port was wanted, and the one of the first address is taken on another.
std::optional<Listening> try_listen(const std::vector<Address>& addresses, std::uint16_t port,
                                    std::chrono::milliseconds link_patience) {
  Listening listening{.sockets = {}, .families = {}, .port = port};
  int left_out = 0;
  for (const Address& address : addresses) {
    Fd fd = listen_at(address, listening.port, link_patience);
    if (!fd) {
      const int reason = errno;
      if (port == 0 && reason == EADDRINUSE && !listening.sockets.empty()) return std::nullopt;
      if (!may_be_left_out(address, reason)) refuse(address, listening.port, reason);
      left_out = reason;
      continue;
    }
    if (listening.port == 0) listening.port = bound_port(fd.get());
    listening.families.push_back(address.storage.ss_family);
    listening.sockets.push_back(std::move(fd));
  }
  if (listening.sockets.empty()) refuse(addresses.front(), port, left_out);
  return listening;
}

}  // namespace

Listening listen_on(const std::vector<std::string>& hosts, std::uint16_t port,
                    std::chrono::milliseconds link_patience) {
  std::vector<Address> addresses;
  for (const std::string& host : hosts) {
    for (const Address& address : addresses_at(host)) {
      const bool seen = std::any_of(addresses.begin(), addresses.end(), [&](const Address& other) {
        return address_text(other.storage) == address_text(address.storage);
      });
      if (!seen) addresses.push_back(address);
    }
  }
  if (addresses.empty()) throw Error(ErrorCode::invalid_argument, "a rendezvous server needs an address to listen on");
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (auto listening = try_listen(addresses, port, link_patience)) return std::move(*listening);
  }
  throw Error(ErrorCode::system, "found no port that is free on every address to listen on");
}

}  // namespace rondo::rendezvous
