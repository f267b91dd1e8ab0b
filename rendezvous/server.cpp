// SPDX-License-Identifier: Apache-2.0
// Asio around the core: one thread, one coroutine per listening address, one for the timer, one for each connection
// that does not take what it is sent. What all connections do, wait for words, is a callback: a coroutine's frames are
// 650 bytes, of 10,000 ranks 6 MiB.
#include "rendezvous/server.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/fork_pause.hpp"
#include "comm/base/limits.hpp"
#include "comm/base/log.hpp"
#include "comm/base/standard_streams.hpp"
#include "kernels/thread.hpp"
#include "rendezvous/core.hpp"
#include "rendezvous/listen.hpp"
#include "rendezvous/outbox.hpp"
#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// What a coroutine of the server's own throws, its thread logs.
constexpr auto rethrow = [](const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
};

constexpr std::chrono::seconds kLingerFor{1};  // for a refusal to arrive before the socket goes
constexpr std::chrono::seconds kDrainWithin{1};
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr int kAcceptsAtOnce = 64;  // then others get their turn
// Where nobody is expected: ranks compute then, and a stranger costs up to 0.1 ms of a core, the waking included.
constexpr std::chrono::milliseconds kBetweenNewcomers{1};
constexpr std::chrono::milliseconds kNoDescriptorPause{20};
constexpr std::size_t kStrangersOfRank0 = 16;  // the descriptors are those of a program that trains
constexpr std::size_t kOwnDescriptors = 5;     // at least: what Asio waits by (3), a socket, the one in reserve
// Rank 0 joins from the same process: its socket, what wakes its thread, and a neighbour that asks for the way.
constexpr std::size_t kOfRank0 = 3;

Time now() { return std::chrono::steady_clock::now(); }

// Of those that a server in rank 0's process greets: its ranks, for whom descriptors are reserved.
std::size_t most_greeted(const ServerOptions& options) {
  constexpr std::size_t kTwice = 16;  // that come again before the server has seen their first connection end
  const std::size_t most = options.limits.unauthenticated_connections;
  if (!options.is_rank_0s || options.world_size < 1) return most;
  return std::min(most, static_cast<std::size_t>(options.world_size) + kTwice);
}

std::size_t most_strangers(const ServerOptions& options, std::size_t reserved) {
  const std::size_t most = options.limits.unauthenticated_connections;
  return descriptors_for_strangers(reserved, options.is_rank_0s ? std::min(most, kStrangersOfRank0) : most);
}

std::string new_name() {
  std::string bytes(16, '\0');
  fill_random(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

CoreOptions core_options(const ServerOptions& options, std::size_t reserved) {
  return {.room = {.job = options.job,
                   .world_size = options.world_size,
                   .is_rank_0s = options.is_rank_0s,
                   .name = new_name(),
                   .starter = options.starter,
                   .store_bytes = options.limits.store_bytes,
                   .come_back_within = options.limits.come_back_within},
          .secret = options.secret,
          .encrypted = options.encrypted,
          .strangers = most_strangers(options, reserved),
          .greeted = most_greeted(options),
          .authenticate_within = options.limits.authenticate_within,
          .evict_after = options.limits.evict_after};
}

}  // namespace

class Server::Impl final : private Output {
 public:
  Impl(const ServerOptions& options, std::size_t reserved) : Impl(options, core_options(options, reserved)) {}
  Impl(const ServerOptions& options, const CoreOptions& of_core)
      : core_(of_core, *this),
        most_lingering_(of_core.strangers),
        timer_(io_),
        room_for_more_(io_),
        spare_(open_spare()) {
    Listening listening = listen_on(options.bind, options.port, options.link_patience);
    port_ = listening.port;
    for (std::size_t i = 0; i < listening.sockets.size(); ++i) {
      const ForkPause pause;  // from one owner's mark to the other's
      acceptors_.emplace_back(io_);
      acceptors_.back().assign(listening.families[i] == AF_INET6 ? tcp::v6() : tcp::v4(),
                               listening.sockets[i].release());
      listening_.emplace_back(acceptors_.back().native_handle());
    }
    for (tcp::acceptor& acceptor : acceptors_) asio::co_spawn(io_, accept_from(acceptor), rethrow);
    asio::co_spawn(io_, keep_time(), rethrow);
    if (!options.secret) {
      log::warn("the rendezvous server of job '{}' on port {} has no secret: whoever reaches it may join", options.job,
                port_);
    }
    thread_ = start_thread("rondo-server", [this] { run(); });
  }
  ~Impl() override {
    asio::co_spawn(io_, drain(), rethrow);
    thread_.join();
    const ForkPause pause;  // between the marks' end and the descriptors'
    listening_.clear();
    acceptors_.clear();
  }
  std::uint16_t port() const { return port_; }
  void wait_for_others(std::chrono::milliseconds patience) {
    constexpr std::chrono::milliseconds kBetweenLooks{2};
    const auto until = now() + patience;
    while (connections() > 1 && now() < until) std::this_thread::sleep_for(kBetweenLooks);
  }

 private:
  struct Connection {
    ConnectionId id;
    tcp::socket socket;
    std::unique_ptr<ClosedInChildren> here{};
    Outbox outbox{};
    bool writing = false, closing = false;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  static Fd open_spare() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  std::size_t connections() {
    std::promise<std::size_t> count;
    asio::post(io_, [this, &count] { count.set_value(core_.connection_count()); });
    return count.get_future().get();
  }

  void run() {
    for (bool again = true; again;) {
      try {
        io_.run();
        again = false;
      } catch (const std::bad_alloc&) {
        throw;  // who takes connections may be gone, and the ranks would wait
      } catch (const std::exception& error) {
        log::error("rendezvous server: {}", error.what());
      }
    }
  }

  // After anything that may have changed the core's timers or the number of strangers.
  void settle() {
    auto next = core_.next_timer().value_or(Time::max());
    if (!lingering_.empty()) next = std::min(next, lingering_.front().first);
    if (next < armed_) timer_.cancel();
    if (!core_.crowded()) room_for_more_.cancel();
  }

  asio::awaitable<void> keep_time() {
    for (;;) {
      armed_ = core_.next_timer().value_or(Time::max());
      if (!lingering_.empty()) armed_ = std::min(armed_, lingering_.front().first);
      timer_.expires_at(armed_);
      error_code ignored;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      core_.tick(now());
      while (!lingering_.empty() && lingering_.front().first <= now()) {
        end_oldest_lingering();
      }
      if (!core_.crowded()) room_for_more_.cancel();
    }
  }

  asio::awaitable<void> accept_from(tcp::acceptor& acceptor) {
    for (;;) {
      error_code ignored;
      co_await acceptor.async_wait(tcp::acceptor::wait_read, asio::redirect_error(asio::use_awaitable, ignored));
      Accepting result = Accepting::more;
      for (int i = 0; i < kAcceptsAtOnce && result == Accepting::more; ++i) {
        result = accept_one(acceptor);
        if (!core_.at_rest(now()) || result != Accepting::more) continue;
        settle();
        asio::steady_timer enough(io_, kBetweenNewcomers);
        co_await enough.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      settle();
      if (result == Accepting::more || result == Accepting::nobody) continue;
      room_for_more_.expires_at(result == Accepting::crowded ? Time::max() : now() + kNoDescriptorPause);
      co_await room_for_more_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

  enum class Accepting : std::uint8_t { more, nobody, crowded, no_descriptor };

  // Makes room where it must: until then nobody is accepted, and nobody is turned away.
  Accepting accept_one(tcp::acceptor& acceptor) {
    if (!core_.takes_one_more(now())) return Accepting::crowded;
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    std::optional<ForkPause> pause(std::in_place);
    Fd fd(::accept4(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &length,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      const int reason = errno;
      pause.reset();
      if (reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM) return shed(acceptor, reason);
      return reason == EINTR || reason == ECONNABORTED ? Accepting::more : Accepting::nobody;
    }
    const bool v6 = address.ss_family == AF_INET6;
    auto connection = std::make_shared<Connection>(Connection{++last_id_, tcp::socket(io_)});
    connection->socket.assign(v6 ? tcp::v6() : tcp::v4(), fd.release());
    connection->here = std::make_unique<ClosedInChildren>(connection->socket.native_handle());
    pause.reset();
    connections_.emplace(connection->id, connection);
    core_.connected(connection->id, address_text(address), now());
    // Its first words are mostly there already, and who has spoken does not give way to the next one.
    hear(connection);
    return Accepting::more;
  }

  // No descriptor is left. Whoever is of no use gives way; then more are opened, where the process is ours or its hard
  // limit allows the job's ranks; then one kept in reserve takes a connection and tells it so, and a round of more
  // ranks than that ends.
  Accepting shed(tcp::acceptor& acceptor, int reason) {
    if (!lingering_.empty()) {
      end_oldest_lingering();
      return Accepting::more;
    }
    if (core_.free_descriptor(now()) || (reason == EMFILE && raise_descriptor_limit())) return Accepting::more;
    const bool hopeless =
        core_.no_room(fmt::format("the rendezvous server has {} connections and cannot take those of all ranks: {}{}",
                                  connections_.size(), std::strerror(reason), remedy_of(reason)));
    spare_.reset();
    {
      const Fd fd(::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd)
        refuse(fd, !hopeless,
               fmt::format("the rendezvous server cannot take more connections: {}{}", std::strerror(reason),
                           remedy_of(reason)));
    }
    spare_ = open_spare();
    return Accepting::no_descriptor;
  }

  void refuse(const Fd& fd, bool busy, const std::string& sentence) {
    proto::ServerHello answer;
    fill(*answer.mutable_refusal(), Error(ErrorCode::system, sentence));
    answer.mutable_refusal()->set_busy(busy);
    const std::string frame = plain_frame(answer.SerializeAsString());
    const ssize_t sent = ::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    int others = 0;
    if (!refusals_.now(others)) return;
    log::warn("rendezvous: refused a connection{}: {}{}", and_others(others), sentence, sent < 0 ? " (untold)" : "");
  }

  // Whoever is not served any more must not wait for it.
  void give_up(Connection& connection, const std::exception_ptr& error) {
    end(connection);
    std::string reason;
    try {
      std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      reason = "no memory is left" + remedy_of(ENOMEM);
    } catch (const std::exception& thrown) {
      reason = thrown.what();
    }
    log::error("rendezvous server: it closes the connection of a client that it cannot serve: {}", reason);
    core_.disconnected(connection.id, "the rendezvous server could not serve it: " + reason, now());
    settle();
  }

  void hear(const ConnectionPtr& connection) {
    try {
      if (!read_from(*connection)) return;
      connection->socket.async_wait(tcp::socket::wait_read, [this, connection](const error_code& failed) {
        if (failed) return end(*connection);
        hear(connection);
        settle();
      });
    } catch (const std::exception&) {
      give_up(*connection, std::current_exception());
    }
  }

  // What is there now. False: the connection has ended.
  bool read_from(Connection& connection) {
    const ssize_t got = ::recv(connection.socket.native_handle(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
      if (!connection.closing) {
        const int error = got == 0 ? 0 : errno;
        core_.disconnected(connection.id, describe_end(connection.socket.native_handle(), error), now());
      }
      end(connection);
      return false;
    }
    if (connection.closing) return true;  // until its end comes, or the linger time is over
    core_.received(connection.id, {buffer_.data(), static_cast<std::size_t>(got)}, now());
    settle();
    return connection.socket.is_open();
  }

  asio::awaitable<void> write_to(ConnectionPtr connection) {
    while (!connection->outbox.empty()) {
      error_code failed;
      co_await connection->socket.async_wait(tcp::socket::wait_write,
                                             asio::redirect_error(asio::use_awaitable, failed));
      if (failed || !connection->socket.is_open()) co_return writer_ends();
      flush(*connection);
    }
    connection->writing = false;
    if (connection->closing) shut(*connection);
    writer_ends();
  }

  // The last replies may be what other ranks wait for: they get a moment to go out.
  asio::awaitable<void> drain() {
    asio::steady_timer enough(io_, kDrainWithin);
    draining_ = &enough;
    error_code ignored;
    if (writers_ > 0) co_await enough.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    io_.stop();
  }

  void flush(Connection& connection) {
    if (connection.outbox.flush(connection.socket.native_handle())) return;
    connection.outbox.clear();
    error_code ignored;
    connection.socket.shutdown(tcp::socket::shutdown_both, ignored);  // hear() sees the end
  }

  void send(ConnectionId id, std::string head, SharedBody body) override {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const ConnectionPtr& connection = found->second;
    if (!head.empty()) connection->outbox.push(std::move(head), std::move(body));
    if (connection->writing) return;
    flush(*connection);
    if (connection->outbox.empty()) return;
    connection->writing = true;
    ++writers_;
    asio::co_spawn(io_, write_to(connection), rethrow);
  }

  void encrypt(ConnectionId id, std::shared_ptr<TlsSession> tls) override {
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->outbox.encrypt(std::move(tls));
  }

  void close(ConnectionId id) override {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    found->second->closing = true;
    lingering_.emplace_back(now() + kLingerFor, found->second);
    if (found->second->outbox.empty()) shut(*found->second);
    while (lingering_.size() > most_lingering_ && lingering_.front().second->outbox.empty()) end_oldest_lingering();
  }

  void drop(ConnectionId id) override {
    const auto found = connections_.find(id);
    if (found != connections_.end()) end(*ConnectionPtr(found->second));
  }

  void end_oldest_lingering() {
    end(*lingering_.front().second);
    lingering_.pop_front();
  }

  void writer_ends() {
    if (--writers_ == 0 && draining_ != nullptr) draining_->cancel();
  }
  void shut(Connection& connection) {
    error_code ignored;
    connection.socket.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void end(Connection& connection) {
    error_code ignored;
    {
      const ForkPause pause;
      connection.here.reset();
      connection.socket.close(ignored);
    }
    connections_.erase(connection.id);
  }

  asio::io_context io_{1};
  Core core_;
  const std::size_t most_lingering_;
  asio::steady_timer timer_, room_for_more_;
  Time armed_ = Time::max();
  Fd spare_;
  OncePerSecond refusals_;
  std::uint16_t port_ = 0;
  std::deque<tcp::acceptor> acceptors_;
  std::deque<ClosedInChildren> listening_;  // their sockets
  ConnectionId last_id_ = 0;
  std::unordered_map<ConnectionId, ConnectionPtr> connections_;
  std::deque<std::pair<Time, ConnectionPtr>> lingering_;
  int writers_ = 0;
  asio::steady_timer* draining_ = nullptr;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
  std::thread thread_;
};

// Asio has descriptors of its own, which may be neither stdout nor stderr.
Server::Server(ServerOptions options)
    : impl_([&] {
        const MissingStreamsTaken taken;
        const auto clients = static_cast<std::size_t>(std::max(options.world_size, 0));
        const std::size_t needed = kOwnDescriptors + clients + (options.is_rank_0s ? kOfRank0 : 0);
        if (!options.is_rank_0s) raise_descriptor_limit();
        reserve_descriptors(needed + kFewestStrangers, clients == 0
                                                           ? "the rendezvous server"
                                                           : fmt::format("the rendezvous server of {} ranks", clients));
        return std::make_unique<Impl>(options, needed);
      }()) {}
Server::~Server() = default;
std::uint16_t Server::port() const { return impl_->port(); }
void Server::wait_for_others(std::chrono::milliseconds patience) const { impl_->wait_for_others(patience); }

}  // namespace rondo::rendezvous
