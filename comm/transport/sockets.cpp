// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/sockets.hpp"

#include <fmt/format.h>

#include <linux/socket.h>  // SOCK_RCVBUF_LOCK
#include <linux/sockios.h>
#include <linux/tcp.h>  // tcpi_snd_wnd, which <netinet/tcp.h> lacks
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "comm/base/fork_pause.hpp"
#include "comm/base/pulse.hpp"
#include "comm/base/system_error.hpp"

namespace rondo {
namespace {

constexpr int kBufferBytes = 4 << 20;

void set_option(const Fd& socket, int level, int option, int value, std::string_view what) {
  if (::setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0) throw_errno(what);
}

// Asked for less than its limit, the kernel takes as much again for itself, and tells both together.
bool grants(int option, int with_its_own) {
  const Fd probe = make_socket(AF_UNIX);
  int value = with_its_own;
  socklen_t bytes = sizeof(value);
  ::setsockopt(probe.get(), SOL_SOCKET, option, &value, sizeof(value));
  return ::getsockopt(probe.get(), SOL_SOCKET, option, &value, &bytes) == 0 && value >= with_its_own;
}

// To ask for: the kernel takes twice as much, and is to be free to double that.
int receive_buffer_bytes() {
  int least = 0, usual = 0, most = 0;
  if (!(std::ifstream("/proc/sys/net/ipv4/tcp_rmem") >> least >> usual >> most)) return kBufferBytes;
  return std::min(kBufferBytes, most / 4);
}

// When the kernel gives up a peer that is silent: later than we do, who know more. Within a host never: a process that
// ends closes its sockets, and one that has lost its core inside a call, the socket locked, is as silent as a host that
// vanished.
void set_user_timeout(const Fd& socket, std::chrono::milliseconds limit) {
  const auto given = stays_on_host(socket.get()) ? std::chrono::milliseconds(0) : limit;
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(given.count()), "cannot set TCP_USER_TIMEOUT");
}

// Of its own the kernel gives up after a quarter of an hour, unless the host was told otherwise.
bool kernel_is_impatient() {
  constexpr int kUsualRetries = 15;
  int retries = 0;
  return (std::ifstream("/proc/sys/net/ipv4/tcp_retries2") >> retries) && retries < kUsualRetries;
}

// Empty where the kernel does not tell.
std::string congestion_control(const Fd& socket) {
  std::array<char, 17> name{};
  socklen_t bytes = name.size() - 1;
  return ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) == 0 ? name.data() : "";
}

// By the host, for new sockets.
std::string preferred_congestion_control(const Fd& socket) {
  int family = AF_INET;
  socklen_t bytes = sizeof family;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &bytes);
  return congestion_control(make_socket(family));
}

void set_congestion_control(const Fd& socket, std::string_view name) {
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

}  // namespace

bool stays_on_host(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0 ||
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

Fd make_socket(int family) {
  const ForkPause pause;
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno(fmt::format("cannot create {} socket", family == AF_UNIX ? "a Unix" : "an IP"));
  fd.close_in_children();
  return fd;
}

bool is_same_user(const Fd& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 &&
         credentials.uid == ::geteuid();
}

void let_receive_buffer_grow(const Fd& socket) {
  int locks = 0;
  socklen_t bytes = sizeof locks;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_BUF_LOCK, &locks, &bytes) != 0) return;
  locks &= ~SOCK_RCVBUF_LOCK;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof locks);
}

void prepare_for_data(const Fd& socket) {
  for (const auto& [option, bytes] : {std::pair{SO_SNDBUF, kBufferBytes}, {SO_RCVBUF, receive_buffer_bytes()}}) {
    if (grants(option, bytes)) set_option(socket, SOL_SOCKET, option, bytes, "cannot set a socket's buffer");
  }
  let_receive_buffer_grow(socket);
  set_congestion_control(socket, "reno");  // where it is not there, the host's own has to do
}

void set_data_options(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "cannot set TCP_NODELAY");
  set_user_timeout(socket, kernel_is_impatient() ? kKernelPatience : std::chrono::milliseconds(0));
  if (!stays_on_host(socket.get())) set_congestion_control(socket, preferred_congestion_control(socket));
}

void set_control_options(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "cannot set TCP_NODELAY");
  set_user_timeout(socket, kKernelPatience);
}

bool is_under_way(int socket) {
  if (stays_on_host(socket)) return false;  // it lies with the peer
  constexpr int kClosed = 7;                // TCP_CLOSE of <netinet/tcp.h>, which <linux/tcp.h> excludes
  tcp_info info{};
  socklen_t bytes = sizeof info;
  const bool open = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_state != kClosed;
  if (!open) return false;  // it was reset, and keeps the count
  int unacknowledged = 0;
  return ::ioctl(socket, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0;
}

void acknowledge_now(const Fd& socket) {
  const int now = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_QUICKACK, &now, sizeof now);
}

bool peer_takes(const Fd& socket, std::size_t bytes) {
  tcp_info info{};
  socklen_t length = sizeof info;
  int unacknowledged = 0;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd ||
      ::ioctl(socket.get(), SIOCOUTQ, &unacknowledged) != 0) {
    return true;  // not a TCP socket, or a kernel that does not tell
  }
  return static_cast<std::size_t>(unacknowledged) + bytes <= info.tcpi_snd_wnd;
}

}  // namespace rondo
