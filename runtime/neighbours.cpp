// SPDX-License-Identifier: Apache-2.0
#include "runtime/neighbours.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"
#include "rendezvous/connect.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/environment.hpp"

namespace rondo::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{10};
constexpr std::chrono::seconds kAnswerWithin{2};

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// A digest, because a meeting may be longer than such a name.
Name name_of(const std::string& meeting) {
  const auto digest = rendezvous::sha256(rendezvous::as_bytes(fmt::format("{}|{}", ::getuid(), meeting)));
  std::string text = fmt::format("rondo-{}-", ::getuid());
  for (int i = 0; i < 16; ++i) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(digest[static_cast<std::size_t>(i)]));
  }
  Name name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());  // the leading zero makes it abstract
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

Fd unix_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("cannot create a Unix socket");
  return fd;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid();
}

void pause_until(Clock::time_point deadline) {
  std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline - Clock::now()));
}

std::string read_to_end(int fd, Clock::time_point deadline) {
  std::string text;
  char buffer[512];
  while (text.size() < 4096) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, rendezvous::poll_ms(deadline)) <= 0) return {};
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got < 0) return {};
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace

class Host::Impl {
 public:
  Impl(const std::string& meeting, const Introduction& introduction, Clock::time_point deadline)
      : text_(fmt::format("{}\n{}\n", rendezvous::endpoint_text(introduction.host, introduction.port),
                          introduction.secret.to_hex())),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        socket_(unix_socket()) {
    if (!stop_) throw_errno("cannot create an eventfd");
    const Name name = name_of(meeting);
    while (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0) {
      if (errno != EADDRINUSE) throw_errno("cannot name a Unix socket");
      if (Clock::now() >= deadline) {
        throw Error(ErrorCode::timeout, fmt::format("another process of this user serves '{}' already; use another "
                                                    "MASTER_PORT or RONDO_JOB for each job",
                                                    meeting));
      }
      pause_until(deadline);
    }
    if (::listen(socket_.get(), SOMAXCONN) != 0) throw_errno("cannot listen on a Unix socket");
    thread_ = start_thread("rondo-neighbour", [this] { serve(); });
  }
  ~Impl() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) log::error("cannot stop the thread that introduces neighbours");
    thread_.join();
    rendezvous::wipe(std::as_writable_bytes(std::span(text_)));
  }

 private:
  void serve() {
    for (;;) {
      pollfd waiting[2] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(waiting, 2, -1) < 0 && errno == EINTR) continue;
      if (waiting[1].revents != 0) return;
      const Fd asking(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!asking) continue;
      if (!same_user(asking.get())) {
        log::warn("a process of another user asked for this job's secret; it got nothing");
        continue;
      }
      // A hundred bytes fit into any fresh socket's buffer.
      if (::send(asking.get(), text_.data(), text_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text_.size())) {
        log::warn("cannot tell a neighbour where the rendezvous is: {}", std::strerror(errno));
      }
    }
  }

  std::string text_;
  Fd stop_, socket_;
  std::thread thread_;
};

Host::Host(const std::string& meeting, const Introduction& introduction, Clock::time_point deadline)
    : impl_(std::make_unique<Impl>(meeting, introduction, deadline)) {}
Host::~Host() = default;

Introduction ask_host(const std::string& meeting, Clock::time_point deadline) {
  const Name name = name_of(meeting);
  do {
    const Fd fd = unix_socket();
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) == 0) {
      if (!same_user(fd.get())) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("a process of another user serves '{}' on this machine; use another MASTER_PORT, or "
                                "set RONDO_SECRET_FILE",
                                meeting));
      }
      const std::string text = read_to_end(fd.get(), std::min(deadline, Clock::now() + kAnswerWithin));
      const auto end = text.find('\n');
      if (end != std::string::npos) {
        Introduction introduction{{}, 0, rendezvous::Secret::from_hex(text.substr(end + 1))};
        parse_endpoint(text.substr(0, end), "rank 0's address, ", introduction.host, introduction.port);
        return introduction;
      }
    }
    pause_until(deadline);
  } while (Clock::now() < deadline);
  throw Error(ErrorCode::timeout,
              fmt::format("rank 0 of '{}' did not appear on this machine by the deadline; see whether it was started, "
                          "by the same user",
                          meeting));
}

}  // namespace rondo::runtime
