// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/event_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "comm/base/system_error.hpp"

namespace rondo::process {

EventLoop::EventLoop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), posted_signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !posted_signal_) throw_errno("cannot make an event loop (epoll and eventfd)");
  watch(posted_signal_.get(), EPOLLIN, [this] { run_posted(); });
}

bool EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    if (errno == EPERM) return false;
    throw_errno("cannot watch a descriptor");
  }
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  return true;
}

void EventLoop::forget(int fd) {
  if (handlers_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::at(Clock::time_point time, Handler handler) { timers_.emplace(time, std::move(handler)); }

void EventLoop::post(Handler handler) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(handler));
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(posted_signal_.get(), &one, sizeof one);  // EAGAIN: it is set
}

void EventLoop::run_posted() {
  std::vector<Handler> handlers;
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(posted_signal_.get(), &count, sizeof count);
    handlers.swap(posted_);
  }
  for (const auto& handler : handlers)
    if (!stopped_) handler();
}

void EventLoop::run() {
  stopped_ = false;
  std::array<epoll_event, 64> events;
  while (!stopped_) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds_to_next_timer());
    if (count < 0 && errno != EINTR) throw_errno("cannot wait for events");
    for (int i = 0; i < count && !stopped_; ++i) {
      const auto found = handlers_.find(events[static_cast<std::size_t>(i)].data.fd);
      if (found == handlers_.end()) continue;  // forgotten by a handler before
      const auto handler = found->second;      // it may forget itself
      (*handler)();
    }
    run_timers();
  }
}

int EventLoop::milliseconds_to_next_timer() const {
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void EventLoop::run_timers() {
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= Clock::now()) {
    const Handler handler = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    handler();
  }
}

}  // namespace rondo::process
