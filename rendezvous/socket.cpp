// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "comm/base/fork_pause.hpp"
#include "comm/base/pulse.hpp"

namespace rondo::rendezvous {
namespace {

constexpr std::chrono::seconds kControlPatience{20};
constexpr int kPatiencesOfLink = 4;  // after a cut of one, what was under way is sent again within another

}  // namespace

std::string address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6);
    ::inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? &v6.s6_addr[12] : &v6.s6_addr[0], text, sizeof text);
  }
  return text;
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Fd make_socket(int family) {
  const ForkPause pause;
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) fd.close_in_children();
  return fd;
}

std::chrono::milliseconds control_patience(std::chrono::milliseconds link_patience) {
  return std::min(std::max<std::chrono::milliseconds>(kControlPatience, kPatiencesOfLink * link_patience),
                  kKernelPatience);
}

// Whoever has no other connection to a host has one answer a second, and must wait for many.
void set_tcp_options(int fd, std::chrono::milliseconds link_patience) {
  const auto set = [fd](int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  // What is under way is sent again 7 times before the pauses grow; bbr, where that is usual, would not.
  constexpr std::string_view kReno = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
  set(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(control_patience(link_patience).count()));  // of both
}

std::string describe_end(int fd, int error) {
  if (error == 0) return "it closed the connection";
  if (error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH) return std::strerror(error);
  int patience_ms = 0;
  socklen_t bytes = sizeof patience_ms;
  ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, &bytes);
  return fmt::format("its host has not answered for {} s ({})", patience_ms / 1000, std::strerror(error));
}

}  // namespace rondo::rendezvous
