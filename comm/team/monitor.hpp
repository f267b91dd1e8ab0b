// SPDX-License-Identifier: Apache-2.0
// One thread that watches descriptors (processes, hang-ups, control messages) while the ranks' own threads compute or
// wait. All communicators of a process share one; it ends with the last of them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "comm/base/fd.hpp"

namespace rondo::comm {

class Monitor {
 public:
  using Handler = std::function<bool()>;  // one at a time, mostly on the monitor's thread; false: stop watching

  static std::shared_ptr<Monitor> of_process();
  enum class Thread : std::uint8_t { own, none };
  explicit Monitor(Thread thread = Thread::own);
  ~Monitor();  // waits for a running handler; handlers never block
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Calls `handler` whenever `fd` is readable or hung up. The descriptor stays the caller's, open until unwatch();
  // several may watch the same.
  int watch(int fd, Handler handler);
  void unwatch(int id);  // after this no handler of that id runs
  // What communicators of this process tell each other: that one of them is aborted, after which the process may end.
  // In the thread that tells, one at a time.
  int hear_aborts(std::function<void()> handler);
  void stop_hearing(int id);  // after this no handler of that id runs
  void tell_abort();
  // Runs that handler in this thread, which holds no lock that a handler takes: what the kernel has, it has then seen.
  void look(int id);
  void look_at_all();  // the same for all that have something to tell, where no thread does

 private:
  struct Watched {
    int descriptor;  // its number in descriptors_
    Handler handler;
  };
  struct Descriptor {
    int fd;
    std::set<int> watches;
  };
  bool handle(int patience_ms);  // false: it shall end
  void run(int id);
  void forget(int id);

  Fd epoll_, stop_;
  std::mutex mutex_;  // held while a handler runs
  std::map<int, Watched> watched_;
  std::map<int, Descriptor> descriptors_;  // by what epoll knows them as, which is never used again
  std::map<int, int> numbers_;             // of descriptors_, by descriptor
  std::mutex hearing_;                     // held while one of these runs
  std::map<int, std::function<void()>> hearers_;
  int next_id_ = 1, next_hearer_ = 1;
  std::thread thread_;
};

}  // namespace rondo::comm
