// SPDX-License-Identifier: Apache-2.0
// What server and client do with sockets besides Asio.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "comm/base/fd.hpp"

namespace rondo::rendezvous {

std::string address_text(const sockaddr_storage& address);               // numeric, without port; IPv4 in IPv6 as IPv4
std::string endpoint_text(const std::string& host, std::uint16_t port);  // "host:port", "[::1]:port"

// A TCP socket, not blocking, which no child of fork() holds: whoever has one that listens has its port. Empty: errno.
Fd make_socket(int family);

// No delay for small messages; a peer that vanished is noticed in some ten seconds, with or without data in flight.
void set_tcp_options(int fd);

}  // namespace rondo::rendezvous
