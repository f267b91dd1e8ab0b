// SPDX-License-Identifier: Apache-2.0
// Two ends of a TCP connection, blocking.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>

#include "comm/base/fd.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {

inline int option(const Fd& fd, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  ::getsockopt(fd.get(), level, name, &value, &bytes);
  return value;
}

// `near` has connected from that address, of the loopback's, to `far` at 127.0.0.1.
struct TcpPair {
  Fd near, far;

  // prepare: what connects, and what listens.
  explicit TcpPair(
      const char* from, const std::function<void(const Fd&)>& prepare = [](const Fd&) {}) {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    prepare(listener);
    sockaddr_in address = at("127.0.0.1");
    socklen_t bytes = sizeof(address);
    REQUIRE(::bind(listener.get(), generic(address), bytes) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), generic(address), &bytes) == 0);
    near = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own = at(from);
    REQUIRE(::bind(near.get(), generic(own), sizeof(own)) == 0);
    prepare(near);
    REQUIRE(::connect(near.get(), generic(address), bytes) == 0);
    far = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(far);
  }

 private:
  static sockaddr_in at(const char* text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, text, &address.sin_addr) == 1);
    return address;
  }
  static sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }
};

}  // namespace rondo::test
