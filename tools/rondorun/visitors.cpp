// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/visitors.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include "tools/rondo/snapshot.hpp"

namespace rondo::launcher {
namespace {

constexpr std::size_t kMostVisitors = 8;
constexpr std::chrono::milliseconds kNoDescriptorPause{100};  // who waits at the door would wake us without end

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

Visitors::~Visitors() {
  if (door_watched_) loop_.forget(door_.get());
  for (const auto& visitor : visitors_) loop_.forget(visitor->socket.get());
}

void Visitors::open(pid_t launcher) {
  Fd door(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const std::string name = records::new_socket_name(::geteuid(), launcher);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!door || ::bind(door.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return;
  if (::listen(door.get(), kMostVisitors) != 0) return;
  door_ = std::move(door);
  watch_door();
}

// But when there are as many as may be: who comes then waits until one leaves.
void Visitors::watch_door() {
  const bool wanted = door_ && visitors_.size() < kMostVisitors;
  if (wanted == door_watched_) return;
  door_watched_ = wanted;
  if (wanted)
    loop_.watch(door_.get(), EPOLLIN, [this] { accept(); });
  else
    loop_.forget(door_.get());
}

void Visitors::leave_door_for_a_while() {
  loop_.forget(door_.get());
  loop_.at(process::EventLoop::Clock::now() + kNoDescriptorPause, [this] {
    door_watched_ = false;
    watch_door();
  });
}

void Visitors::accept() {
  Fd socket(::accept4(door_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    return leave_door_for_a_while();
  if (!socket || !is_same_user(socket.get())) return;
  const auto visitor = visitors_.emplace_back(std::make_shared<Visitor>());
  visitor->socket = std::move(socket);
  loop_.watch(visitor->socket.get(), EPOLLIN, [this, visitor] { read(visitor); });
  watch_door();
}

void Visitors::read(const std::shared_ptr<Visitor>& visitor) {
  std::array<char, 64> words{};
  const ssize_t got = ::recv(visitor->socket.get(), words.data(), words.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || words.front() != records::kAskForSnapshot) return leave(visitor);
  if (visitor->waits || !visitor->unsent.empty()) return;  // one answer at a time
  visitor->waits = true;
  look_([this, weak = std::weak_ptr(visitor)](std::string snapshot) {
    const auto still = weak.lock();
    if (!still || !still->socket) return;
    still->waits = false;
    still->unsent = std::move(snapshot);
    send(still);
  });
}

void Visitors::send(const std::shared_ptr<Visitor>& visitor) {
  const int socket = visitor->socket.get();
  while (!visitor->unsent.empty()) {
    const ssize_t sent = ::send(socket, visitor->unsent.data(), visitor->unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return leave(visitor);
    if (sent < 0) break;
    visitor->unsent.erase(0, static_cast<std::size_t>(sent));
  }
  loop_.forget(socket);
  if (visitor->unsent.empty())
    loop_.watch(socket, EPOLLIN, [this, visitor] { read(visitor); });
  else
    loop_.watch(socket, EPOLLOUT, [this, visitor] { send(visitor); });
}

void Visitors::leave(const std::shared_ptr<Visitor>& visitor) {
  const auto kept = visitor;  // the handler that calls us holds the other
  loop_.forget(kept->socket.get());
  kept->socket.reset();
  visitors_.remove(kept);
  watch_door();
}

}  // namespace rondo::launcher
