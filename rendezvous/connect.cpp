// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/connect.hpp"

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

// 0, or the reason.
int connect_within(int fd, const addrinfo& address, Deadline deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{fd, POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, poll_ms(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return ETIMEDOUT;
  int reason = 0;
  socklen_t size = sizeof reason;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  return reason;
}

// Where nobody listens at a port that the kernel gives out, too, a socket may get that very port and reach itself. It
// holds the port then, and who was to listen there cannot.
bool is_own_end(int fd) {
  sockaddr_storage here{}, there{};
  socklen_t length = sizeof here, other = sizeof there;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &other) == 0 && length == other &&
         std::memcmp(&here, &there, length) == 0;
}

}  // namespace

int poll_ms(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

Fd try_connect(const std::string& host, std::uint16_t port, Deadline deadline, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  if (status != 0) reason = ::gai_strerror(status);
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    // An address that swallows packets must not eat the time of the next one.
    const auto now = std::chrono::steady_clock::now();
    const Deadline own = address->ai_next == nullptr ? deadline : std::min(deadline, now + (deadline - now) / 4);
    Fd fd = make_socket(address->ai_family);
    int failed = fd ? connect_within(fd.get(), *address, own) : errno;
    if (failed == 0 && is_own_end(fd.get())) failed = ECONNREFUSED;
    if (failed == 0) return fd;
    reason = std::strerror(failed);
  }
  return Fd();
}

std::string local_address_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address_text(address);
}

}  // namespace rondo::rendezvous
