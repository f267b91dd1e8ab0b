// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/free_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/base/fd.hpp"

namespace rondo::launcher {

std::uint16_t free_port() {
  // IPv6 where there is any, so that the port is free for both.
  for (const int family : {AF_INET6, AF_INET}) {
    const Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (!socket || ::bind(socket.get(), generic, length) != 0 || ::getsockname(socket.get(), generic, &length) != 0)
      continue;
    // sin_port and sin6_port lie at the same place.
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  return 0;
}

}  // namespace rondo::launcher
