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
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/store.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/limits.hpp"
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
struct Greeted {
  Authenticator::Mac proof{};  // to send next
  std::vector<std::byte> transcript{};
};
// Sends HELLO and waits for the other end's CHALLENGE; nothing when that proves nothing.
Awaitable<std::optional<Greeted>> greet(SharedSocket socket, std::shared_ptr<const Greeting> greeting);

// Decides, before anything is signed, whether an encounter may take place.
class Guard {
 public:
  virtual bool expects(const Encounter& encounter) const = 0;

 protected:
  ~Guard() = default;
};

// Connections that have been accepted and are not examined yet: few of those that have said nothing that only a peer
// knows, so that strangers use few descriptors, and as many more as peers are awaited. Where there are too many, the
// oldest is closed: who waited in the kernel's queue has spoken by the time it is accepted, so a peer is hit rarely,
// and then comes again.
class Unexamined {
 public:
  // `awaited`: connections of peers, for which descriptors are reserved.
  explicit Unexamined(std::size_t awaited);
  void enter(const SharedSocket& socket);
  void has_spoken(const SharedSocket& socket);  // as a peer would
  void leave(const SharedSocket& socket);
  bool close_oldest_stranger();  // false: there is none
  // One line a second at most; true: write it, with this number of others.
  bool may_tell(int& others) { return told_.now(others); }

 private:
  std::list<SharedSocket> strangers_, speakers_;  // oldest first
  const std::size_t most_strangers_, most_speakers_;
  OncePerSecond told_;
};

struct Examined {
  Encounter encounter{};
  std::vector<std::byte> transcript{};
};
// Who connected and proved it; nothing for a stranger.
Awaitable<std::optional<Examined>> examine(SharedSocket socket, const Membership& membership, const Guard& guard,
                                           Unexamined& unexamined);

// A stream over a connection whose ends have proven themselves and said `transcript`.
Awaitable<std::unique_ptr<SecureStream>> secure(SharedSocket socket, const Encryption& encryption, Encryption::End end,
                                                std::vector<std::byte> transcript);

Awaitable<void> pause(asio::io_context& io, std::chrono::milliseconds duration);

// Runs what is under way until it stops the context, or to the deadline; what the lookout throws ends it too.
void run_until(asio::io_context& io, Store::Deadline deadline, const Lookout& lookout);

// Accepts until the context stops; `handler` gets each connection. Out of descriptors: the oldest stranger gives way;
// where there is none, waits a little, goes on.
class AcceptHandler {
 public:
  virtual void accepted(Fd socket) = 0;

 protected:
  ~AcceptHandler() = default;
};
Awaitable<void> accept_all(asio::io_context& io, Fd listener, AcceptHandler& handler, Unexamined& unexamined);

}  // namespace rondo
