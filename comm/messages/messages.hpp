// SPDX-License-Identifier: Apache-2.0
// A communicator's sends and receives on the CPU. Any thread may post them. Whoever waits in a blocking one moves all
// of them meanwhile; while others are on their way and nobody waits, a thread does, which ends soon after the last.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <poll.h>

#include "comm/base/fd.hpp"
#include "comm/call/flight_recorder.hpp"
#include "comm/messages/batch.hpp"
#include "comm/messages/exchange.hpp"
#include "comm/setup/config.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm {

class Messages {
 public:
  // `failure`: the communicator's, once it has one, as its calls throw it. Any thread, never two at once.
  Messages(Team& team, const Config& config, std::function<std::exception_ptr()> failure);
  ~Messages();  // what is still on its way has failed before, see drain_for()
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Sends and receives that are right by themselves, each with the timeout, from now on. They go on by themselves.
  std::shared_ptr<Batch> start(std::span<const Call> calls, std::chrono::milliseconds timeout, bool tells_source);
  // Until all of them are done; throws the first error.
  void run(std::span<const Call> calls, std::chrono::milliseconds timeout);
  void wait(Batch& batch);  // the same, of what was started
  // Until nothing is on its way. False: not by then.
  bool drain_for(std::chrono::milliseconds duration);
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }  // there has been one
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct Patience;  // of one thread that moves messages

  Lock enter();
  // A message that has to wait for little. False: it is still to be posted, with this number in the flight record.
  bool run_at_once(const Call& call, std::uint64_t& record);
  bool receive_soon(const Call& call);
  std::uint64_t note(Collective which, std::uint64_t count, DataType dtype, int peer);  // its number in the record
  void post(Batch& batch);                                                              // the first of batches_
  void wait(Lock& lock, Batch& batch);
  bool nothing_left() const { return batches_.empty() && exchange_.idle(); }
  bool advance(Lock& lock);
  template <class Step>
  void guarded(Step step);
  void collect();
  void settle(Batch& batch, std::exception_ptr failure);
  void fail(const Error& error);
  void deliver(Lock& lock);
  template <class Done>
  bool drive(Lock& lock, Clock::time_point until, Done done);
  void idle(Lock& lock, Patience& patience, Clock::time_point until);
  void sleep(Lock& lock, Patience& patience, Clock::time_point until);
  void poll_links(Lock& lock, Clock::time_point until);
  void mind_times(Clock::time_point now);
  void excuse(Clock::duration stood_still);
  void inspect();
  void tell_what_waits();
  void look_for_departures();
  void look_for_standoffs();
  void look_for_deadlines();
  std::string report(const Batch& batch, const Operation& operation) const;
  const Operation* find_waiting_for(int peer) const;
  void nudge();
  void keep_going();  // without the caller
  void loop();

  Team& team_;
  const std::function<std::exception_ptr()> failure_;
  const Doorbells bells_;
  const std::uint64_t spins_, yields_, rounds_per_yield_;
  std::atomic<bool> in_use_{false};
  std::atomic<int> entering_{0};  // threads that want the mutex
  std::mutex mutex_;              // guards the rest
  std::condition_variable changed_;
  Exchange exchange_;
  FlightRecorder recorder_;
  std::list<std::shared_ptr<Batch>> batches_;        // not settled
  std::list<std::shared_ptr<Batch>> ended_, spare_;  // of blocking calls: settled, and to be used again
  std::vector<std::shared_ptr<Batch>> settled_;      // to be told
  int waiting_ = 0;                                  // threads that wait for one that watches
  Clock::time_point next_inspection_{}, first_deadline_ = Clock::time_point::max();
  bool watching_ = false;  // a thread sleeps on the doorbell and the links; others on changed_
  Fd nudge_;               // of that thread
  bool running_ = false, stopping_ = false;
  bool told_ = false;  // others, that a call waits
  std::vector<pollfd> polled_;
  std::vector<Blocked> blocked_;
  DeathWatch death_watch_;
  FarewellWatch farewell_watch_;
  std::thread thread_;
};

}  // namespace rondo::comm
