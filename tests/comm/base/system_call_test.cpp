// SPDX-License-Identifier: Apache-2.0
#include "comm/base/system_call.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "comm/base/fd.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;

namespace {

Fd make_datagram_socket() {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  REQUIRE(socket);
  return socket;
}

sockaddr_in bind_to_loopback(const Fd& socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket.get(), name, bytes) == 0);
  REQUIRE(::getsockname(socket.get(), name, &bytes) == 0);
  return address;
}

// A function that calls none keeps such things under its stack.
[[gnu::noinline]] bool keeps_what_lies_under_the_stack() {
  volatile int kept[24];
  for (int i = 0; i < 24; ++i) kept[i] = i;
  yield_cpu();
  bool same = true;
  for (int i = 0; i < 24; ++i) same = kept[i] == i && same;
  return same;
}

}  // namespace

TEST_CASE("a system call takes six arguments, and returns its result or its error") {
  const Fd from = make_datagram_socket(), to = make_datagram_socket();
  const sockaddr_in address = bind_to_loopback(to);
  std::array<char, 8> bytes{};
  const auto receive = [&] {
    return system_call(SYS_recvfrom, ::recv, to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  };
  CHECK(receive() == -EAGAIN);
  CHECK(system_call(SYS_sendto, ::sendto, from.get(), "seven b", std::size_t{7}, 0,
                    reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(sizeof address)) == 7);
  CHECK(receive() == 7);
  CHECK(bytes == std::array{'s', 'e', 'v', 'e', 'n', ' ', 'b', '\0'});
  CHECK(system_call(SYS_close, ::close, -1) == -EBADF);
}

TEST_CASE("a system call leaves alone what lies under the stack") { CHECK(keeps_what_lies_under_the_stack()); }

TEST_CASE("the kernel tells whether returns go astray") {
  CHECK(tells_of_stray_returns("Mitigation: Safe RET\n"));
  CHECK(tells_of_stray_returns("Vulnerable: Safe RET, no microcode\n"));
  CHECK_FALSE(tells_of_stray_returns("Not affected\n"));
  CHECK_FALSE(tells_of_stray_returns("Mitigation: SMT disabled\n"));
  CHECK_FALSE(tells_of_stray_returns(""));
}

#if defined(RONDO_HAS_SYSTEM_CALLS) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
namespace {

// Both are returned from.
[[gnu::noinline]] bool sends_and_receives(int from, int to) {
  char byte = 1;
  return system_call(SYS_sendto, ::send, from, &byte, std::size_t{1}, MSG_DONTWAIT) == 1 &&
         system_call(SYS_recvfrom, ::recv, to, &byte, std::size_t{1}, MSG_DONTWAIT) == 1;
}

[[gnu::noinline]] bool sends_and_receives_by_the_library(int from, int to) {
  char byte = 1;
  return ::send(from, &byte, 1, MSG_DONTWAIT) == 1 && ::recv(to, &byte, 1, MSG_DONTWAIT) == 1;
}

}  // namespace

TEST_CASE("where returns go astray, a message costs less than by the C library's functions") {
  if (!system_calls::kHaveStrayReturns) {
    WARN("skipped: this processor and its kernel have no stray returns");
    return;
  }
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const Fd from(ends[0]), to(ends[1]);
  bool works = true;
  const auto seconds = [&](auto message) {
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) works = message(from.get(), to.get()) && works;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  const auto median = [](std::vector<double> all) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
  };
  std::vector<double> ours, theirs;
  for (int turn = 0; turn < 31; ++turn) {
    ours.push_back(seconds(&sends_and_receives));
    theirs.push_back(seconds(&sends_and_receives_by_the_library));
  }
  CHECK(works);
  CAPTURE(median(ours), median(theirs));
  CHECK(median(ours) < 0.9 * median(theirs));
}
#endif
