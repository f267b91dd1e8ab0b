// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "comm/base/system_error.hpp"

namespace rondo {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr int kUserTimeoutMs = 2000;
constexpr int kKeepaliveIdleS = 1;
constexpr int kKeepaliveIntervalS = 1;
constexpr int kKeepaliveProbes = 2;

void set_option(const Fd& socket, int level, int option, int value, std::string_view what) {
  if (::setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0) throw_errno(what);
}

bool grants(int option) {
  const Fd probe = make_socket(AF_UNIX);
  int value = kBufferBytes;
  socklen_t bytes = sizeof(value);
  ::setsockopt(probe.get(), SOL_SOCKET, option, &value, sizeof(value));
  return ::getsockopt(probe.get(), SOL_SOCKET, option, &value, &bytes) == 0 && value >= kBufferBytes;
}

void set_keepalive(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "cannot set TCP_NODELAY");
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "cannot set SO_KEEPALIVE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS, "cannot set TCP_KEEPIDLE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS, "cannot set TCP_KEEPINTVL");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes, "cannot set TCP_KEEPCNT");
}

// Whether both ends of a connection are on this host: then they have the same address.
bool stays_on_host(const Fd& socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0 ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0 ||
      here.ss_family != there.ss_family) {
    return false;
  }
  if (here.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(here).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(there).sin_addr.s_addr;
  }
  return here.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(here).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(there).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

Fd make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("cannot create a socket");
  return fd;
}

bool is_same_user(const Fd& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 &&
         credentials.uid == ::geteuid();
}

void set_large_buffers(const Fd& socket) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    if (grants(option)) set_option(socket, SOL_SOCKET, option, kBufferBytes, "cannot set a socket's buffer");
  }
}

void set_data_options(const Fd& socket) {
  set_keepalive(socket);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0, "cannot clear TCP_USER_TIMEOUT");
  // Nothing to share, so nothing to pace: BBR would hold segments back by timers. Where Reno is not there, let it be.
  if (stays_on_host(socket)) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void set_control_options(const Fd& socket) {
  set_keepalive(socket);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs, "cannot set TCP_USER_TIMEOUT");
}

}  // namespace rondo
