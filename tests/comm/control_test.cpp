// SPDX-License-Identifier: Apache-2.0
#include "comm/team/control.hpp"

#include <linux/tcp.h>  // tcpi_snd_wnd, which <netinet/tcp.h> lacks
#include <netinet/in.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/tcp_pair.hpp"

using namespace rondo;
using namespace rondo::comm;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr int kGivenUpAfterMs = 200;
constexpr int kSmallBufferBytes = 16 << 10;

// Linux does since 5.4; qemu-user does not.
bool tells_window(const Fd& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         length >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
}

// What the monitor's thread reports, for one that waits for it.
class Reports {
 public:
  Control::Events events() {
    const auto nothing = [](int) {};
    return {.failed = [this](int, ErrorCode, const Culprits&,
                             std::string_view sentence) { note("failed: " + std::string(sentence)); },
            .waiting = [this](int, const Signature& signature,
                              std::uint64_t) { note("waiting " + std::to_string(signature.sequence)); },
            .departed = [this](int, const Signature&, bool) { note("departed"); },
            .unmapped = nothing,
            .attends = [](int, std::uint64_t, std::uint64_t) {},
            .apart = [](int, std::uint64_t) {},
            .asked = [](int, std::uint64_t, const Signature&) {},
            .answered = [](int, std::uint64_t, int, const Signature&, std::uint64_t) {},
            .aborted = [](int, std::uint64_t) {},
            .lost = [this](int, std::string_view reason) { note("lost: " + std::string(reason)); }};
  }
  // The first one that begins so; empty: none came in time.
  std::string await(std::string_view beginning, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    std::string found;
    changed_.wait_for(lock, limit, [&] {
      for (const std::string& report : all_) {
        if (found.empty() && report.starts_with(beginning)) found = report;
      }
      return !found.empty();
    });
    return found;
  }

 private:
  void note(std::string report) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(report));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

}  // namespace

// To the kernel, a process that is stopped and one on a host that vanished are the same once its buffers are full.
TEST_CASE("control: who is stopped for long is not lost by what others keep telling it") {
  TcpPair pair("127.0.0.1",
               [](const Fd& fd) { ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSmallBufferBytes, sizeof(int)); });
  if (!tells_window(pair.far)) {
    WARN("skipped: this kernel does not tell the peer's window");
    return;
  }
  ::setsockopt(pair.far.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kGivenUpAfterMs, sizeof(int));
  Reports here, there;
  const auto monitor = std::make_shared<Monitor>();
  Control telling(monitor, here.events());
  telling.add(1, std::move(pair.far));
  telling.start();
  for (std::uint64_t i = 1; i <= 1000; ++i) telling.announce_waiting({.sequence = i});
  CHECK(here.await("lost", 5 * std::chrono::milliseconds(kGivenUpAfterMs)).empty());
  telling.announce_failure(ErrorCode::aborted, 0, "enough");
  telling.announce_departure({});

  Control told(monitor, there.events());  // goes on
  told.add(0, std::move(pair.near));
  told.start();
  CHECK(there.await("waiting 1", 10s) == "waiting 1");
  CHECK(there.await("failed", 10s) == "failed: enough");
  CHECK(there.await("departed", 10s) == "departed");
}

TEST_CASE("control: a peer that reads is told everything") {
  TcpPair pair("127.0.0.1");
  Reports here, there;
  const auto monitor = std::make_shared<Monitor>();
  Control telling(monitor, here.events()), told(monitor, there.events());
  telling.add(1, std::move(pair.far));
  told.add(0, std::move(pair.near));
  telling.start();
  told.start();
  for (std::uint64_t i = 1; i <= 100; ++i) {
    telling.announce_waiting({.sequence = i});
    const std::string expected = "waiting " + std::to_string(i);
    REQUIRE(there.await(expected, 10s) == expected);
  }
}
