// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

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
}

void set_control_options(const Fd& socket) {
  set_keepalive(socket);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs, "cannot set TCP_USER_TIMEOUT");
}

}  // namespace rondo
