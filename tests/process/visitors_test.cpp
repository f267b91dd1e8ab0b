// SPDX-License-Identifier: Apache-2.0
// Who looks at a job whose launcher has no descriptor left.
#include "tools/rondorun/visitors.hpp"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "tests/support/catch.hpp"
#include "tools/rondo/snapshot.hpp"
#include "tools/rondo/visit.hpp"

namespace {

using namespace std::chrono_literals;
using rondo::Fd;
using rondo::process::EventLoop;

// While it lives, this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = ::dup(STDIN_FILENO);
    ::close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// Asks; the answer comes when the launcher takes it in.
Fd visitor_of(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::send(socket.get(), &rondo::records::kAskForSnapshot, 1, MSG_NOSIGNAL) == 1);
  return socket;
}

}  // namespace

TEST_CASE("who comes to look while no descriptor is free is answered when one is") {
  EventLoop loop;
  rondo::launcher::Visitors visitors(loop, [](const rondo::launcher::Visitors::Answer& answer) { answer("seen"); });
  visitors.open(::getpid());
  const Fd socket = visitor_of(rondo::records::find_job(::getpid()).socket);
  std::string heard;
  bool early = false;
  loop.watch(socket.get(), EPOLLIN, [&] {
    char bytes[16];
    const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    heard.assign(bytes, got > 0 ? static_cast<std::size_t>(got) : 0);
    loop.stop();
  });
  auto nothing_free = std::make_unique<NoDescriptors>();
  const auto begun = EventLoop::Clock::now();
  loop.at(begun + 300ms, [&] {
    early = !heard.empty();
    nothing_free.reset();
  });
  loop.at(begun + 30s, [&] { loop.stop(); });
  loop.run();
  loop.forget(socket.get());
  CHECK_FALSE(early);
  CHECK(heard == "seen");
}
