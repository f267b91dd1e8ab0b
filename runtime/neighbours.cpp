// SPDX-License-Identifier: Apache-2.0
#include "runtime/neighbours.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/fork_pause.hpp"
#include "comm/base/limits.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"
#include "rendezvous/connect.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/launchers/environment.hpp"

namespace rondo::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAnswerWithin{2};
constexpr int kNames = 8;  // of one meeting: a forked child may hold a dead rank 0's
constexpr int kAcceptPauseMs = 20;
constexpr std::chrono::milliseconds kConnectsWithin{50};  // to a queue that is full: nobody of ours leaves it so
constexpr std::chrono::milliseconds kListensWithin{100};  // who has taken a name

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A digest, because a meeting may be longer than such a name.
Name name_of(const std::string& meeting, int turn) {
  const auto digest = rendezvous::sha256(rendezvous::as_bytes(fmt::format("{}|{}|{}", ::getuid(), meeting, turn)));
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

// Its name is taken as long as anybody has it open.
Fd unix_socket() {
  const ForkPause pause;
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("cannot create a Unix socket");
  fd.close_in_children();
  return fd;
}

ucred peer_of(int fd) {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof peer;
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

bool same_user(int fd) { return peer_of(fd).uid == ::getuid(); }

// A socket connected to whoever has the name; empty: nobody that listens.
Fd reach(const Name& name) {
  Fd fd = unix_socket();
  const timeval limit{.tv_sec = 0, .tv_usec = std::chrono::microseconds(kConnectsWithin).count()};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), name.get(), name.bytes) != 0) fd.reset();
  return fd;
}

// Who listened is gone, and a child of it that it forked has the socket still. 0: of another pid namespace.
bool is_orphan(int fd) {
  const pid_t pid = peer_of(fd).pid;
  return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

enum class Holder : std::uint8_t { nobody, ours, orphan, other_user };

struct Reached {
  Holder who = Holder::nobody;  // nobody: that can be reached
  Fd fd{};
};

Reached look_at(const Name& name) {
  Fd fd = reach(name);
  if (!fd) return {};
  const Holder who = !same_user(fd.get()) ? Holder::other_user : is_orphan(fd.get()) ? Holder::orphan : Holder::ours;
  return {who, std::move(fd)};
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

// Tells whoever asks where rank 0 serves and the secret, on a thread of its own, until it is destroyed.
class Host {
 public:
  Host(Fd listening, const rendezvous::Endpoint& endpoint)
      : text_(fmt::format("{}\n{}\n", rendezvous::endpoint_text(endpoint.host, endpoint.port),
                          endpoint.secret->to_hex())),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        socket_(std::move(listening)) {
    if (!stop_) throw_errno("cannot create an eventfd");
    thread_ = start_thread("rondo-neighbour", [this] { serve(); });
  }
  ~Host() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) log::error("cannot stop the thread that introduces neighbours");
    thread_.join();
    rendezvous::wipe(std::as_writable_bytes(std::span(text_)));
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

 private:
  void serve() {
    for (;;) {
      pollfd waiting[2] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(waiting, 2, -1) < 0 && errno == EINTR) continue;
      if (waiting[1].revents != 0) return;
      const Fd asking(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!asking) {  // gone again, or no descriptor is free: not at once again
        ::poll(&waiting[1], 1, kAcceptPauseMs);
        continue;
      }
      if (!same_user(asking.get())) {
        int others = 0;
        if (told_.now(others)) {
          log::warn("a process of another user{} asked for this job's secret; it got nothing", and_others(others));
        }
        continue;
      }
      // A hundred bytes fit into any fresh socket's buffer.
      if (::send(asking.get(), text_.data(), text_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text_.size())) {
        const int reason = errno;
        int others = 0;
        if (told_.now(others)) {
          log::warn("cannot tell a neighbour{} where the rendezvous is: {}", and_others(others), std::strerror(reason));
        }
      }
    }
  }

  std::string text_;
  OncePerSecond told_;
  Fd stop_, socket_;
  std::thread thread_;
};

// A living rank 0 of this user has one of the meeting's names.
bool is_taken(const std::string& meeting, int own_turn = -1) {
  for (int turn = 0; turn < kNames; ++turn) {
    if (turn != own_turn && look_at(name_of(meeting, turn)).who == Holder::ours) return true;
  }
  return false;
}

// Binds and listens; false: somebody has the name. Nobody of ours has it longer than that without being reachable.
bool try_take(const Fd& fd, const Name& name) {
  if (::bind(fd.get(), name.get(), name.bytes) != 0) {
    if (errno != EADDRINUSE) throw_errno("cannot name a Unix socket");
    return false;
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) throw_errno("cannot listen on a Unix socket");
  return true;
}

// A listening socket with the first of the meeting's names that no other has; empty: a living rank 0 of this user has
// one. Anybody may take a name, so one that is held by another user, or by who does not listen, is passed over.
Fd take_name(const std::string& meeting) {
  if (is_taken(meeting)) return {};
  for (int turn = 0; turn < kNames; ++turn) {
    const Name name = name_of(meeting, turn);
    const auto until = Clock::now() + kListensWithin;
    do {
      Fd fd = unix_socket();
      if (try_take(fd, name)) return is_taken(meeting, turn) ? Fd() : std::move(fd);
      const Holder who = look_at(name).who;
      if (who == Holder::ours) return {};
      if (who != Holder::nobody) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(kAcceptPauseMs));
    } while (Clock::now() < until);
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("all {} names of '{}' on this machine are held by processes of other users or by children of "
                          "ranks that are gone: use another MASTER_PORT or RONDO_JOB, or set RONDO_SECRET_FILE",
                          kNames, meeting));
}

}  // namespace

std::string NeighbourPoint::describe() const { return fmt::format("'{}' on this machine", meeting_); }

std::shared_ptr<Hosting> NeighbourPoint::try_host(int world_size) {
  Fd named = take_name(meeting_);
  if (!named) return nullptr;
  auto hosting = std::make_shared<Hosting>();
  hosting->endpoint = {.host = "127.0.0.1", .secret = secret_of_job(), .job = job_, .encrypted = encrypted_};
  hosting->server =
      std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.secret = hosting->endpoint.secret,
                                                                     .encrypted = hosting->endpoint.encrypted,
                                                                     .job = job_,
                                                                     .world_size = world_size,
                                                                     .is_rank_0s = true,
                                                                     .starter = parent_identity()});
  hosting->endpoint.port = hosting->server->port();
  hosting->claim = std::make_shared<Host>(std::move(named), hosting->endpoint);
  return hosting;
}

std::optional<rendezvous::Endpoint> NeighbourPoint::find(std::string& reason, Store::Deadline deadline) {
  reason = "it did not appear; see whether it was started, by the same user";
  for (int turn = 0; turn < kNames; ++turn) {
    const Reached reached = look_at(name_of(meeting_, turn));
    if (reached.who == Holder::other_user) {
      reason = fmt::format("it did not appear; pid {} of another user has one of the names that it may take",
                           peer_of(reached.fd.get()).pid);
    }
    if (reached.who != Holder::ours) continue;
    const std::string text =
        read_to_end(reached.fd.get(), std::min<Store::Deadline>(deadline, Clock::now() + kAnswerWithin));
    const auto end = text.find('\n');
    if (end == std::string::npos) {
      reason = fmt::format("pid {}, which serves there, does not answer", peer_of(reached.fd.get()).pid);
      return std::nullopt;
    }
    rendezvous::Endpoint endpoint{
        .host = {}, .secret = rendezvous::Secret::from_hex(text.substr(end + 1)), .job = job_, .encrypted = encrypted_};
    parse_endpoint(text.substr(0, end), "rank 0's address, ", endpoint.host, endpoint.port);
    reason.clear();
    return endpoint;
  }
  return std::nullopt;
}

}  // namespace rondo::runtime
