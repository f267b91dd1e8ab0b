// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/sockets.hpp"

#include <arpa/inet.h>
#include <linux/socket.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/base/pulse.hpp"
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

// A network for this thread alone, and threads that it starts, where nobody else counts.
class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (!before_ || ::unshare(CLONE_NEWNET) != 0) return;
    const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    possible_ = ::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0;
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;
  ~OwnNetwork() { ::setns(before_.get(), CLONE_NEWNET); }
  bool possible() const { return possible_; }
  // What receive buffers of sockets made from now on may grow to. False where /proc/sys is read-only.
  bool limit_receive_buffers(int bytes) const {
    std::ofstream file("/proc/sys/net/ipv4/tcp_rmem");
    file << "4096 131072 " << bytes << std::flush;
    return file.good();
  }

 private:
  Fd before_;
  bool possible_ = false;
};

// Not on kernels before 5.15, nor under qemu, which may ask and not set.
bool buffers_can_be_let_grow() {
  const Fd socket = make_socket(AF_INET);
  const int locks = option(socket, SOL_SOCKET, SO_BUF_LOCK);
  return locks >= 0 && ::setsockopt(socket.get(), SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof locks) == 0;
}

// In this thread's network: a line of names, then one of values.
long counted(const std::string& name) {
  std::ifstream file("/proc/thread-self/net/netstat");
  std::string names, values;
  while (std::getline(file, names) && std::getline(file, values)) {
    std::istringstream each_name(names), each_value(values);
    std::string value;
    for (std::string word; each_name >> word && each_value >> value;) {
      if (word == name) return std::stol(value);
    }
  }
  throw std::runtime_error("no counter is called " + name);
}

// So many bytes, in messages; the receiver begins when the sender gets rid of no more. How many are missing then.
std::size_t overrun(const TcpPair& pair, std::size_t message, std::size_t total) {
  const std::vector<char> bytes(message);
  std::size_t sent = 0, received = 0;
  const auto send_on = [&](int flags) {
    for (ssize_t n = 1; n > 0 && sent < total; sent += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = ::send(pair.near.get(), bytes.data(), message, flags | MSG_NOSIGNAL);
  };
  send_on(MSG_DONTWAIT);
  std::thread rest([&] {
    send_on(0);
    ::shutdown(pair.near.get(), SHUT_WR);
  });
  std::vector<char> into(message);
  for (ssize_t n = 0; (n = ::recv(pair.far.get(), into.data(), into.size(), 0)) > 0;)
    received += static_cast<std::size_t>(n);
  rest.join();
  return sent - received;
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

TEST_CASE("sockets: between hosts the kernel gives up a silent peer later than we do, within a host never") {
  const bool host = GENERATE(true, false);
  const TcpPair pair(host ? "127.0.0.1" : "127.0.0.2");
  set_control_options(pair.near);  // as if between hosts, until the peer is known
  set_data_options(pair.far);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == (host ? 0 : kKernelPatience.count()));
  CHECK(option(pair.far, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
  for (const Fd* end : {&pair.near, &pair.far}) {
    CHECK(option(*end, SOL_SOCKET, SO_KEEPALIVE) == 0);
    CHECK(option(*end, IPPROTO_TCP, TCP_NODELAY) != 0);
  }
}

TEST_CASE("sockets: the kernel probes for a pulse by itself, and leaves it to us to give up") {
  const TcpPair pair("127.0.0.2");
  Pulse::prepare(pair.near.get());
  CHECK(option(pair.near, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == kKernelPatience.count());
}

TEST_CASE("sockets: a connection that is probed now and then is given up by us, too") {
  const TcpPair pair("127.0.0.2", prepare_for_data);
  set_data_options(pair.near);
  System::real().keep_probing(pair.near.get(), true);
  CHECK(option(pair.near, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == kKernelPatience.count());
}

TEST_CASE("sockets: what was set before the peer was known goes once it is on this host") {
  TcpPair pair("127.0.0.1", [](const Fd& fd) { set_control_options(fd); });
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == kKernelPatience.count());
  SECTION("control") { set_control_options(pair.near); }
  SECTION("data") { set_data_options(pair.near); }
  CHECK(option(pair.near, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
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

TEST_CASE("sockets: a receive buffer is let grow, and the send buffer is left as it was") {
  if (!buffers_can_be_let_grow()) {
    WARN("skipped: the kernel has no SO_BUF_LOCK");
    return;
  }
  const bool fixed = GENERATE(false, true);
  const int few = 64 << 10;
  const Fd socket = make_socket(AF_INET);
  for (const int buffer : {SO_SNDBUF, SO_RCVBUF}) {
    if (fixed) REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, buffer, &few, sizeof few) == 0);
  }
  let_receive_buffer_grow(socket);
  CHECK(option(socket, SOL_SOCKET, SO_BUF_LOCK) == (fixed ? SOCK_SNDBUF_LOCK : 0));
}

TEST_CASE("sockets: nothing that a late reader finds had to be sent twice") {
  const OwnNetwork network;
  if (!network.possible() || !buffers_can_be_let_grow()) {
    WARN("skipped: network namespaces are not permitted, or the kernel has no SO_BUF_LOCK");
    return;
  }
  const int limit = GENERATE(6 << 20, 32 << 20);  // the default of older kernels, of newer ones
  const std::size_t message = GENERATE(100, 500, 1056, 2056, 5056, 20'056, 60'056, 100'056);
  CAPTURE(limit, message);
  if (!network.limit_receive_buffers(limit)) {
    WARN("skipped: tcp_rmem cannot be set in a network namespace here");
    return;
  }
  const TcpPair pair("127.0.0.1", prepare_for_data);
  for (const Fd* end : {&pair.near, &pair.far}) set_data_options(*end);
  CHECK(overrun(pair, message, 64 << 20) == 0);
  CHECK(counted("TCPRcvQDrop") == 0);
  CHECK(counted("TCPTimeouts") == 0);
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
