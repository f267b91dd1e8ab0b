// SPDX-License-Identifier: Apache-2.0
// What a team asks of the operating system that takes time or tells it. Tests have a system of their own, in which time
// is simulated.
#pragma once
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "comm/base/fd.hpp"

namespace rondo {

class System {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static System& real();
  virtual ~System() = default;
  virtual Time now();
  virtual void nap(std::chrono::nanoseconds duration);  // this thread
  // As ppoll(): how many have something to tell, 0 once it is too late, or -1 with errno.
  virtual int poll(std::span<pollfd> descriptors, std::chrono::nanoseconds patience);
  // Until somebody has said that something has changed, or it is too late, or for no reason.
  virtual void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    std::chrono::nanoseconds patience);
  // As start_thread(). A system may have threads that are none of the kernel's: join() waits for all of them.
  virtual std::thread start(const char* name, std::function<void()> body);
  virtual void join(std::thread& thread);  // if it was started
  // A descriptor that does not block and can be read from a time on. Error(system).
  virtual Fd make_alarm();
  virtual void set_alarm(const Fd& alarm, Time time);

  struct Silence {
    std::chrono::milliseconds since{};  // anything was heard from the other host
    bool under_way = false;             // something that was sent is not acknowledged
  };
  virtual std::optional<Silence> silence_of(int socket);  // of a connection; nothing: it has ended
  virtual void keep_probing(int socket, bool on);         // told so, the kernel looks at once, and then every second

 protected:
  System() = default;
};

}  // namespace rondo
