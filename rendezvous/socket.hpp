// SPDX-License-Identifier: Apache-2.0
// What server and client do with sockets besides Asio.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "comm/base/fd.hpp"

namespace rondo::rendezvous {

std::string address_text(const sockaddr_storage& address);               // numeric, without port; IPv4 in IPv6 as IPv4
std::string endpoint_text(const std::string& host, std::uint16_t port);  // "host:port", "[::1]:port"

// A TCP socket, not blocking, which no child of fork() holds: whoever has one that listens has its port. Empty: errno.
Fd make_socket(int family);

// How long the other host may leave the kernel's probes, or what was sent, unanswered until it counts as gone; it
// depends on what a user says of links. Arithmetic: docs/decisions/silence.md.
std::chrono::milliseconds control_patience(std::chrono::milliseconds link_patience);
// Of a connection, or of a socket that listens, for those it accepts: that, and no delay for small messages.
void set_tcp_options(int fd, std::chrono::milliseconds link_patience);
// How a connection ended for which recv() says that: 0, or errno.
std::string describe_end(int fd, int error);

}  // namespace rondo::rendezvous
