// SPDX-License-Identifier: Apache-2.0
// Strangers at ports of this machine: so many connections at once, which say nothing, garbage, a length that no memory
// has, or a byte now and then, each opened again as soon as it was closed. On a thread of its own, until it is
// destroyed.
#pragma once
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::test {

class Flood {
 public:
  enum class Says : std::uint8_t { nothing, garbage, length, drops };
  // `count`: as many as this process may open, at most.
  Flood(std::vector<std::uint16_t> ports, std::size_t count, Says says) : ports_(std::move(ports)), says_(says) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    constexpr rlim_t kOthers = 200;
    connections_.resize(
        std::min<std::size_t>(count, limit.rlim_cur > 2 * kOthers ? limit.rlim_cur - kOthers : kOthers));
    thread_ = std::thread([this] { run(); });
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  std::size_t size() const { return connections_.size(); }
  std::uint64_t connected() const { return connected_; }  // so far
  std::uint64_t met() const { return met_; }              // that were closed again by who listened

 private:
  void open(std::size_t index) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return;
    const linger abort_at_close{1, 0};  // leaves nothing behind
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &abort_at_close, sizeof abort_at_close);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(ports_[opened_++ % ports_.size()]);
    const int result = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (result != 0 && errno != EINPROGRESS) return;
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = index}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
    connections_[index] = std::move(fd);
  }
  void look_at(std::size_t index, std::uint32_t events) {
    Fd& fd = connections_[index];
    if (!fd) return;
    constexpr std::string_view kGarbage = "\x40garbage, of which no frame begins and no hello, but that is long enough";
    constexpr std::string_view kLength("\xff\xff\xff\xff\x01\0\0\0\xff\xff\xff\xff\x01\0\0\0", 16);
    if ((events & EPOLLOUT) != 0 && says_ == Says::garbage) say(fd, kGarbage);
    if ((events & EPOLLOUT) != 0 && says_ == Says::length) say(fd, kLength);
    std::array<char, 1024> heard;
    ssize_t got = -1;
    while ((got = ::recv(fd.get(), heard.data(), heard.size(), 0)) > 0) continue;
    if (got < 0 && errno == EAGAIN) return;
    met_ += got == 0 ? 1 : 0;
    fd.reset();
  }
  static void say(const Fd& fd, std::string_view words) {
    [[maybe_unused]] const auto sent = ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Also of who is closed again at once.
  void count(std::uint32_t events) {
    constexpr std::uint32_t kRefused = EPOLLERR;
    if ((events & EPOLLOUT) != 0 && (events & kRefused) == 0) ++connected_;
  }
  void run() {
    std::array<epoll_event, 256> events;
    std::size_t next = 0;
    while (!stop_) {
      constexpr std::size_t kOpenedAtOnce = 64;
      for (std::size_t i = 0, opened = 0; i < connections_.size() && opened < kOpenedAtOnce; ++i) {
        next = (next + 1) % connections_.size();
        if (connections_[next] && says_ == Says::drops && i < kOpenedAtOnce) say(connections_[next], "R");
        if (connections_[next]) continue;
        open(next);
        ++opened;
      }
      const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 1);
      for (int i = 0; i < ready; ++i) {
        count(events[static_cast<std::size_t>(i)].events);
        look_at(static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64),
                events[static_cast<std::size_t>(i)].events);
      }
    }
  }

  const std::vector<std::uint16_t> ports_;
  const Says says_;
  Fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Fd> connections_;
  std::uint64_t opened_ = 0;
  std::atomic<std::uint64_t> connected_{0}, met_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rondo::test
