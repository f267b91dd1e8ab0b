// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <optional>
#include <span>

#include "comm/base/fork_pause.hpp"

namespace rondo {
namespace {

constexpr std::size_t kMostStrangers = 64;
constexpr std::size_t kMoreSpeakers = 8;  // peers that come again before the end of their first connection is seen

// Its handshake fails then.
void close_oldest(std::list<SharedSocket>& sockets) {
  boost::system::error_code ignored;
  sockets.front()->close(ignored);
  sockets.pop_front();
}

}  // namespace

SharedSocket adopt(asio::io_context& io, Fd fd, int family) {
  auto socket = std::make_shared<StreamSocket>(io);
  socket->assign(asio::generic::stream_protocol(family, 0), fd.get());
  fd.release();
  socket->native_non_blocking(true);
  return socket;
}

Fd release(StreamSocket& socket) {
  Fd fd(socket.release());
  fd.close_in_children();
  return fd;
}

TimeLimit::TimeLimit(asio::io_context& io, const SharedSocket& socket, std::chrono::milliseconds limit)
    : timer_(io, limit) {
  timer_.async_wait([weak = std::weak_ptr(socket)](boost::system::error_code error) {
    const auto alive = weak.lock();
    if (!error && alive) alive->close(error);
  });
}

Awaitable<std::optional<Greeted>> greet(SharedSocket socket, std::shared_ptr<const Greeting> greeting) {
  co_await asio::async_write(*socket, asio::buffer(greeting->hello()), asio::use_awaitable);
  Challenge challenge{};
  co_await asio::async_read(*socket, asio::buffer(challenge), asio::use_awaitable);
  const auto proof = greeting->answer(challenge);
  if (!proof) co_return std::nullopt;
  co_return Greeted{*proof, greeting->transcript(challenge)};
}

Unexamined::Unexamined(std::size_t awaited)
    : most_strangers_(descriptors_for_strangers(2 * awaited + kMoreSpeakers, kMostStrangers)),
      most_speakers_(awaited + kMoreSpeakers) {}

void Unexamined::enter(const SharedSocket& socket) {
  if (strangers_.size() >= most_strangers_) close_oldest(strangers_);
  strangers_.push_back(socket);
}

void Unexamined::has_spoken(const SharedSocket& socket) {
  strangers_.remove(socket);
  if (speakers_.size() >= most_speakers_) close_oldest(speakers_);
  speakers_.push_back(socket);
}

void Unexamined::leave(const SharedSocket& socket) {
  strangers_.remove(socket);
  speakers_.remove(socket);
}

bool Unexamined::close_oldest_stranger() {
  if (strangers_.empty()) return false;
  close_oldest(strangers_);
  return true;
}

Awaitable<std::optional<Examined>> examine(SharedSocket socket, const Membership& membership, const Guard& guard,
                                           Unexamined& unexamined) {
  Hello hello{};
  const auto magic = std::span(hello).first<kMagicBytes>();
  co_await asio::async_read(*socket, asio::buffer(magic.data(), magic.size()), asio::use_awaitable);
  if (!begins_hello(magic)) co_return std::nullopt;
  const auto rest = std::span(hello).subspan<kMagicBytes>();
  co_await asio::async_read(*socket, asio::buffer(rest.data(), rest.size()), asio::use_awaitable);

  Examination examination(membership);
  const std::optional<Encounter> encounter = examination.read(hello);
  if (!encounter || !guard.expects(*encounter)) co_return std::nullopt;
  unexamined.has_spoken(socket);
  const Challenge challenge = examination.challenge();
  co_await asio::async_write(*socket, asio::buffer(challenge), asio::use_awaitable);
  Authenticator::Mac proof{};
  co_await asio::async_read(*socket, asio::buffer(proof), asio::use_awaitable);
  if (!examination.accept(proof)) co_return std::nullopt;
  co_return Examined{*encounter, examination.transcript()};
}

Awaitable<std::unique_ptr<SecureStream>> secure(SharedSocket socket, const Encryption& encryption, Encryption::End end,
                                                std::vector<std::byte> transcript) {
  auto stream = encryption.over(socket->native_handle(), end, transcript);
  for (long result = stream->shake_hands(); result != 0; result = stream->shake_hands()) {
    if (result != -EAGAIN)
      throw boost::system::system_error(static_cast<int>(-result), boost::system::system_category());
    co_await socket->async_wait(StreamSocket::wait_read, asio::use_awaitable);
  }
  co_return stream;
}

Awaitable<void> pause(asio::io_context& io, std::chrono::milliseconds duration) {
  asio::steady_timer timer(io, duration);
  co_await timer.async_wait(asio::use_awaitable);
}

void run_until(asio::io_context& io, Store::Deadline deadline, const Lookout& lookout) {
  constexpr std::chrono::milliseconds kLookEvery{10};
  if (!lookout) {
    io.run_until(deadline);
    return;
  }
  while (!io.stopped() && std::chrono::steady_clock::now() < deadline) {
    io.run_until(std::min(deadline, std::chrono::steady_clock::now() + kLookEvery));
    if (!io.stopped()) lookout();
  }
}

Awaitable<void> accept_all(asio::io_context& io, Fd listener, AcceptHandler& handler, Unexamined& unexamined) {
  asio::posix::stream_descriptor door(io);
  std::optional<ForkPause> no_forks(std::in_place);
  door.assign(listener.release());
  const ClosedInChildren here(door.native_handle());  // a child would have the port
  no_forks.reset();
  while (true) {
    co_await door.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
    Fd socket(::accept4(door.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      handler.accepted(std::move(socket));
    } else if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
      continue;
    } else if ((errno != EMFILE && errno != ENFILE) || !unexamined.close_oldest_stranger()) {
      co_await pause(io, std::chrono::milliseconds(20));
    }
  }
}

}  // namespace rondo
