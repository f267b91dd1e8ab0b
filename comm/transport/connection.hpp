// SPDX-License-Identifier: Apache-2.0
// The handshake over Asio sockets, TCP and Unix alike. One thread runs the io_context; what does not finish is
// destroyed with it.
#pragma once
#include <utility>  // before Asio: its coroutine header of Boost 1.74 uses std::exchange without it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <rondo/store.hpp>

#include "comm/base/fd.hpp"
#include "comm/transport/handshake.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo {

namespace asio = boost::asio;
template <class T>
using Awaitable = asio::awaitable<T>;
using StreamSocket = asio::generic::stream_protocol::socket;
using SharedSocket = std::shared_ptr<StreamSocket>;

SharedSocket adopt(asio::io_context& io, Fd fd, int family);
Fd release(StreamSocket& socket);  // non-blocking, no longer Asio's; closed in forked children

// Closes the socket when it lives longer than `limit`; whatever waits on it then fails.
class TimeLimit {
 public:
  TimeLimit(asio::io_context& io, const SharedSocket& socket, std::chrono::milliseconds limit);

 private:
  asio::steady_timer timer_;
};

// Both throw boost::system::system_error when the connection fails.
// Sends HELLO and waits for the other end's CHALLENGE; the proof to send next, or nothing when it proves nothing.
Awaitable<std::optional<Authenticator::Mac>> greet(SharedSocket socket, std::shared_ptr<const Greeting> greeting);

// Decides, before anything is signed, whether an encounter may take place.
class Guard {
 public:
  virtual bool expects(const Encounter& encounter) const = 0;

 protected:
  ~Guard() = default;
};
// Who connected and proved it; nothing for a stranger.
Awaitable<std::optional<Encounter>> examine(SharedSocket socket, const Membership& membership, const Guard& guard);

Awaitable<void> pause(asio::io_context& io, std::chrono::milliseconds duration);

// Runs what is under way until it stops the context, or to the deadline; what the lookout throws ends it too.
void run_until(asio::io_context& io, Store::Deadline deadline, const Lookout& lookout);

// Accepts until the context stops; `handle` gets each connection. Out of descriptors: waits a little, goes on.
class AcceptHandler {
 public:
  static constexpr int kMaxStrangers = 1024;  // accepted, not yet examined
  virtual void accepted(Fd socket) = 0;

 protected:
  ~AcceptHandler() = default;
};
Awaitable<void> accept_all(asio::io_context& io, Fd listener, AcceptHandler& handler);

}  // namespace rondo
