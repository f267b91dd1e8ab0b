// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/sockets.hpp"

#include <arpa/inet.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <thread>

#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/tcp_pair.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

std::string congestion_control(const Fd& fd) {
  std::array<char, 16> name{};
  socklen_t bytes = sizeof(name);
  ::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes);
  return name.data();
}

// Not under qemu, which hands a socket's options on as numbers of four bytes: "reno" passes, "bbr" does not.
bool can_be(const std::string& name) {
  return ::setsockopt(make_socket(AF_INET).get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

// A page on which whoever touches it waits, in the kernel, until provide().
class AbsentPage {
 public:
  AbsentPage() : fault_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register wanted{.range = {begin(), kBytes}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
    possible_ =
        fault_ && ::ioctl(fault_.get(), UFFDIO_API, &api) == 0 && ::ioctl(fault_.get(), UFFDIO_REGISTER, &wanted) == 0;
  }
  bool possible() const { return possible_; }
  void* data() { return memory_.data(); }
  bool await_touch() const {
    pollfd touched{fault_.get(), POLLIN, 0};
    return ::poll(&touched, 1, 10'000) == 1;
  }
  void provide() const {
    uffdio_zeropage page{.range = {begin(), kBytes}, .mode = 0, .zeropage = 0};
    ::ioctl(fault_.get(), UFFDIO_ZEROPAGE, &page);
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }
  Mapping memory_ = map_anonymous(kBytes);
  Fd fault_;
  bool possible_ = false;
};

}  // namespace

TEST_CASE("sockets: between hosts the kernel gives up a silent peer, within a host never") {
  const bool host = GENERATE(true, false);
  const TcpPair pair(host ? "127.0.0.1" : "127.0.0.2");
  set_control_options(pair.near);  // as if between hosts, until the peer is known
  set_data_options(pair.far);
  CHECK(option(pair.near, SOL_SOCKET, SO_KEEPALIVE) == (host ? 0 : 1));
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == (host ? 0 : 2000));
  CHECK(option(pair.far, SOL_SOCKET, SO_KEEPALIVE) == (host ? 0 : 1));
  CHECK(option(pair.far, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_NODELAY) != 0);
}

TEST_CASE("sockets: what was set before the peer was known goes once it is on this host") {
  TcpPair pair("127.0.0.1", [](const Fd& fd) { set_control_options(fd); });
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == 2000);
  SECTION("control") { set_control_options(pair.near); }
  SECTION("data") { set_data_options(pair.near); }
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
  CHECK(option(pair.near, SOL_SOCKET, SO_KEEPALIVE) == 0);
}

// Not from later on: a connection that has been BBR's for a moment is paced for ever.
TEST_CASE("sockets: Reno from the beginning; between hosts what they prefer, once it is known") {
  const std::string preferred = congestion_control(make_socket(AF_INET));
  const bool host = GENERATE(true, false);
  if (!host && preferred == "reno") {
    WARN("skipped: this host prefers Reno between hosts, too");
    return;
  }
  if (!host && !can_be(preferred)) {
    WARN("skipped: what this host prefers cannot be asked for");
    return;
  }
  const TcpPair pair(host ? "127.0.0.1" : "127.0.0.2", prepare_for_data);
  for (const Fd* end : {&pair.near, &pair.far}) {
    CHECK(congestion_control(*end) == "reno");
    set_data_options(*end);
    CHECK(congestion_control(*end) == (host ? "reno" : preferred));
  }
}

TEST_CASE("sockets: a queue is made as short as it should be, or left alone") {
  const int wanted = 384 << 10;
  const TcpPair pair("127.0.0.1");
  ::setsockopt(pair.far.get(), SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
  const bool granted = option(pair.far, SOL_SOCKET, SO_RCVBUF) == 2 * wanted;
  const int before = option(pair.near, SOL_SOCKET, SO_RCVBUF);
  set_short_queue(pair.near);
  CHECK(option(pair.near, SOL_SOCKET, SO_RCVBUF) == (granted ? 2 * wanted : before));
}

// As a thread that loses its core in the middle of a call: its socket is locked and acknowledges nothing.
TEST_CASE("sockets: a rank of this host that is stuck in the kernel is not taken for dead") {
  AbsentPage page;
  if (!page.possible()) {
    WARN("skipped: userfaultfd is not permitted");
    return;
  }
  const TcpPair pair("127.0.0.1");
  set_control_options(pair.near);
  set_control_options(pair.far);
  std::thread stuck([&] { ::recv(pair.far.get(), page.data(), 1, 0); });
  CHECK(::send(pair.near.get(), "a", 1, MSG_NOSIGNAL) == 1);
  CHECK(page.await_touch());
  CHECK(::send(pair.near.get(), "b", 1, MSG_NOSIGNAL) == 1);
  constexpr int kLongerThanBetweenHostsMs = 3500;
  pollfd broken{pair.near.get(), POLLIN, 0};
  CHECK(::poll(&broken, 1, kLongerThanBetweenHostsMs) == 0);
  page.provide();
  stuck.join();
  char byte = 0;
  CHECK(::recv(pair.far.get(), &byte, 1, 0) == 1);
  CHECK(byte == 'b');
}
