// SPDX-License-Identifier: Apache-2.0
// epoll and timers for one thread, which may be sent work by others: all waiting of the launcher, without polling.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::process {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void()>;

  EventLoop();
  // Calls `handler` while `fd` is readable, writable (per `events`, EPOLLIN or EPOLLOUT) or hung up. False: this kind
  // of file is always ready and cannot be watched.
  bool watch(int fd, std::uint32_t events, Handler handler);
  void forget(int fd);  // before it is closed
  void at(Clock::time_point time, Handler handler);
  void post(Handler handler);  // from any thread: runs on the loop's
  void run();                  // until stop()
  void stop() { stopped_ = true; }

 private:
  int milliseconds_to_next_timer() const;
  void run_timers();
  void run_posted();

  Fd epoll_;
  std::map<int, std::shared_ptr<Handler>> handlers_;
  std::multimap<Clock::time_point, Handler> timers_;
  bool stopped_ = false;
  Fd posted_signal_;
  std::mutex mutex_;
  std::vector<Handler> posted_;  // guarded by mutex_
};

}  // namespace rondo::process
