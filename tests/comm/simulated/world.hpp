// SPDX-License-Identifier: Apache-2.0
// Processes in simulated time, on one thread: each has threads, which are fibers, and a monitor, which is a call. Time
// passes when nobody can go on. Who goes on first, and what befalls a process, follows from a seed.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "comm/base/system.hpp"
#include "comm/team/monitor.hpp"
#include "kernels/simt/fiber.hpp"

namespace rondo::comm::test {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Time = System::Time;

class World;

struct Killed {};  // thrown where a thread of a process that was killed would go on

// A simulated process, and the operating system as its threads see it.
class Process final : public System {
 public:
  Process(World& world, int rank);
  ~Process() override;

  void run(std::function<void()> body);  // in a thread of its
  void kill();                           // its threads end where they wait; nothing of it is seen before unwind()
  void stop() { stopped_ = true; }       // by a signal
  void go_on();
  bool killed() const { return killed_; }
  bool stopped() const { return stopped_; }
  bool ended() const;  // all of its threads have
  void has_news();     // one of the monitor's descriptors does: it looks, unless the process is stopped
  void look_soon();    // its threads, too
  const std::shared_ptr<Monitor>& monitor() const { return monitor_; }
  // What silence_of() says of a descriptor.
  void set_silence(std::function<std::optional<Silence>(int socket)> of) { silence_ = std::move(of); }

  Time now() override;
  void nap(nanoseconds duration) override;
  int poll(std::span<pollfd> descriptors, nanoseconds patience) override;
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, nanoseconds patience) override;
  std::thread start(const char* name, std::function<void()> body) override;
  void join(std::thread& thread) override;
  Fd make_alarm() override;
  void set_alarm(const Fd& alarm, Time time) override;
  std::optional<Silence> silence_of(int socket) override { return silence_(socket); }
  void keep_probing(int, bool) override {}

 private:
  friend class World;
  struct Thread {
    Process* process;
    std::function<void()> body;
    simt::Fiber fiber{};
    std::span<pollfd> polled{};  // while it waits
    Time until{};
    bool nudged = false, ended = false;
    std::array<std::byte, 2 * sizeof(void*)> handled{};  // what the C++ runtime knows of exceptions, a thread's own
  };
  struct Alarm {
    Fd descriptor;  // another one of the same
    Time time{};
  };
  void block(Time until, std::span<pollfd> descriptors = {});
  bool ready(const Thread& thread) const;
  static void enter(void* thread);

  World& world_;
  const int rank_;
  bool killed_ = false, stopped_ = false, news_ = false;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::shared_ptr<Alarm>> alarms_;
  std::shared_ptr<Monitor> monitor_;
  std::function<std::optional<Silence>(int)> silence_;
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) { simt::adopt_thread(own_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Process& add_process();
  Process& process(int rank) { return *processes_[static_cast<std::size_t>(rank)]; }
  Time now() const { return now_; }
  void after(nanoseconds delay, std::function<void()> action) { events_.emplace(now_ + delay, std::move(action)); }
  void at(Time time, std::function<void()> action) { events_.emplace(std::max(now_, time), std::move(action)); }
  // What is to be done whenever a thread, or a monitor, has come to a point where it waits.
  void set_after_step(std::function<void(Process&)> action) { after_step_ = std::move(action); }
  bool run(Time until);  // false: by then some thread has not ended
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) { return low + random_() % (high - low + 1); }

 private:
  friend class Process;
  bool step();  // whether anybody could go on
  void resume(Process::Thread& thread);
  void look(Process& process);

  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::multimap<Time, std::function<void()>> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::function<void(Process&)> after_step_ = [](Process&) {};
  simt::Fiber own_{};
  Process::Thread* running_ = nullptr;
};

}  // namespace rondo::comm::test
