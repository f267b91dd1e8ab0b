// SPDX-License-Identifier: Apache-2.0
// Stands between the two ends of TCP connections, as whoever owns a cable would: keeps all that goes by, and changes a
// byte on request. One thread of its own.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::test {

class Relay {
 public:
  struct Conversation {
    std::string up{}, down{};  // what the connecting end has said, and the other
  };

  Relay() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { run(); }) {}
  ~Relay() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // A port of the loopback's whose connections go on to `target`, of the loopback's too.
  std::uint16_t port_to(std::uint16_t target) {
    Fd listener = make_socket();
    sockaddr_in own = loopback(0);
    socklen_t bytes = sizeof own;
    if (::bind(listener.get(), generic(own), bytes) != 0 || ::listen(listener.get(), 64) != 0 ||
        ::getsockname(listener.get(), generic(own), &bytes) != 0)
      throw std::runtime_error("the relay cannot listen");
    const std::lock_guard lock(mutex_);
    doors_.push_back({std::move(listener), target});
    wake();
    return ntohs(own.sin_port);
  }
  std::vector<Conversation> heard() const {
    const std::lock_guard lock(mutex_);
    std::vector<Conversation> all;
    for (const Line& line : lines_) all.push_back(line.heard);
    return all;
  }
  // Whether any end of any connection said it.
  bool heard(std::string_view words) const {
    const std::lock_guard lock(mutex_);
    for (const Line& line : lines_) {
      if (line.heard.up.find(words) != std::string::npos || line.heard.down.find(words) != std::string::npos)
        return true;
    }
    return false;
  }
  // The middle byte of the next piece, of the conversations that `which` says, is changed on its way; once.
  void change_one(std::function<bool(const Conversation&, std::string_view piece)> which) {
    const std::lock_guard lock(mutex_);
    which_ = std::move(which);
  }
  bool has_changed() const {
    const std::lock_guard lock(mutex_);
    return changed_;
  }

 private:
  struct Door {
    Fd listener;
    std::uint16_t target;
  };
  struct Line {
    Fd near, far;
    Conversation heard{};
    std::string to_far{}, to_near{};
    bool near_ended = false, far_ended = false;
  };

  static Fd make_socket() { return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }
  void wake() const {
    const std::uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof one) < 0) return;  // it is awake
  }

  void run() {
    for (;;) {
      std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        for (const Door& door : doors_) polled.push_back({door.listener.get(), POLLIN, 0});
        for (const Line& line : lines_) {
          polled.push_back(wanted(line.near, line.near_ended, line.to_near));
          polled.push_back(wanted(line.far, line.far_ended, line.to_far));
        }
      }
      ::poll(polled.data(), polled.size(), -1);
      std::uint64_t wakes = 0;
      if (polled[0].revents != 0 && ::read(wake_.get(), &wakes, sizeof wakes) < 0) continue;
      const std::lock_guard lock(mutex_);
      for (const Door& door : doors_) accept(door);
      for (Line& line : lines_) carry(line);
    }
  }
  static pollfd wanted(const Fd& end, bool ended, const std::string& to_it) {
    const int events = (ended ? 0 : POLLIN) | (to_it.empty() ? 0 : POLLOUT);
    return {events == 0 ? -1 : end.get(), static_cast<short>(events), 0};
  }
  void accept(const Door& door) {
    pollfd waiting{door.listener.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) != 1) return;
    Fd near(::accept4(door.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Fd far = make_socket();
    sockaddr_in target = loopback(door.target);
    if (near && ::connect(far.get(), generic(target), sizeof target) == 0)
      lines_.push_back({.near = std::move(near), .far = std::move(far)});
  }
  void carry(Line& line) {
    take(line, line.near, line.near_ended, line.heard.up, line.to_far);
    take(line, line.far, line.far_ended, line.heard.down, line.to_near);
    give(line.far, line.to_far, line.near_ended);
    give(line.near, line.to_near, line.far_ended);
  }
  void take(const Line& line, const Fd& from, bool& ended, std::string& heard, std::string& onwards) {
    char buffer[65536];
    while (!ended) {
      const ssize_t got = ::recv(from.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) {
        ended = true;
        return;
      }
      std::string piece(buffer, static_cast<std::size_t>(got));
      if (which_ && !changed_ && which_(line.heard, piece)) {
        piece[piece.size() / 2] = static_cast<char>(piece[piece.size() / 2] ^ 0x10);
        changed_ = true;
      }
      heard += piece;
      onwards += piece;
    }
  }
  static void give(const Fd& to, std::string& bytes, bool ended) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (sent < 0) bytes.clear();
      if (sent > 0) bytes.erase(0, static_cast<std::size_t>(sent));
    }
    if (ended) ::shutdown(to.get(), SHUT_WR);
  }

  Fd wake_;
  mutable std::mutex mutex_;  // guards what follows
  bool stopping_ = false, changed_ = false;
  std::function<bool(const Conversation&, std::string_view)> which_;
  std::list<Door> doors_;
  std::list<Line> lines_;
  std::thread thread_;
};

}  // namespace rondo::test
