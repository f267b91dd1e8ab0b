// SPDX-License-Identifier: Apache-2.0
// What stands behind a Communicator: checks a call, publishes its signature, picks the algorithm, runs it, and turns
// whatever goes wrong into the communicator's one failure. Calls are of any threads, the engine's among them; the
// engine lets them run one at a time.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/base/duration.hpp"
#include "comm/base/fork.hpp"
#include "comm/call/choice_log.hpp"
#include "comm/call/engine.hpp"
#include "comm/call/flight_recorder.hpp"
#include "comm/call/flight_records.hpp"
#include "comm/call/host_primitives.hpp"
#include "comm/call/monitored_barrier.hpp"
#include "comm/call/prepared_calls.hpp"
#include "comm/device/launch/device_engine.hpp"
#include "comm/hierarchy/two_level.hpp"
#include "comm/messages/messages.hpp"
#include "comm/node/memory/windows.hpp"
#include "comm/node/ways/board_collectives.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/config.hpp"
#include "comm/setup/lineage.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm {

// A Call that owns its counts, for calls that outlive the caller's statement.
struct OwnedCall {
  explicit OwnedCall(const Call& from);
  Call call() const;

 private:
  Call call_;
  std::vector<std::size_t> send_counts_, recv_counts_;
};

}  // namespace rondo::comm

namespace rondo::detail {

class CommunicatorImpl {
 public:
  CommunicatorImpl(std::unique_ptr<comm::Team> team, Bootstrap bootstrap, Options options, comm::Config config);
  ~CommunicatorImpl();

  // In a child of fork() a communicator says what it is, refuses every call, and is forgotten, not destroyed.
  bool is_here() const { return origin_.is_here(); }
  void check_process() const {
    if (!is_here()) [[unlikely]]
      refuse_child();
  }
  int rank() const { return team_->rank(); }
  int world_size() const { return team_->size(); }
  comm::Team& team() { return *team_; }
  const comm::Team& team() const { return *team_; }
  const Bootstrap& bootstrap() const { return bootstrap_; }
  const Options& options() const { return options_; }
  const comm::Config& config() const { return config_; }
  int next_child() { return children_++; }
  comm::Ancestry& ancestry() { return ancestry_; }
  const std::shared_ptr<comm::Windows>& windows() const { return windows_; }      // on the CPU
  comm::device::DeviceEngine* device() const { return device_.get(); }            // null: the CPU
  int driver() const { return device_ ? device_->driver() : bootstrap_.driver; }  // see device/memory/berth.hpp
  // Collective, once, before the first call: on Device::cpu it does nothing. `api`: see make_local.
  void attach_device(const cuda::Api* api = nullptr);

  // What is made of several calls of this communicator; a call of another thread comes before or after all of them.
  template <class Body>
  void in_one_turn(Body&& body) {
    check_process();
    std::unique_lock<std::recursive_mutex> lock(device_calls_, std::defer_lock);
    if (device_) lock.lock();
    engine_.in_one_turn(body);
  }
  void submit(const Call& call);
  void submit_on_host(const Call& call);  // host memory, whatever the device
  Work start(const Call& call);
  void run_group(std::span<const comm::OwnedCall> calls);
  Work start_group(std::vector<comm::OwnedCall> calls);
  // `timeout`: of each of its two collectives; 0: the communicator's.
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> value,
                                                       std::chrono::milliseconds timeout = {});
  void set_timeout(std::chrono::milliseconds timeout);
  void synchronize(Stream stream);
  void monitored_barrier(std::chrono::milliseconds timeout, bool waits_for_all);
  void abort();
  void check();
  std::string flight_record() const { return comm::flight_record(*this); }
  std::string calls_as_json() const { return recorder_.json(&messages_.recorder()); }

 private:
  [[noreturn]] void refuse_child() const;
  void validate(const Call& call) const;
  bool is_plain_message(const Call& call) const;
  comm::Buffers buffers_of(const Call& call) const;
  void execute(const Call& call);
  void run_messages(std::span<const Call> calls);
  std::shared_ptr<comm::Batch> start_messages(std::span<const Call> calls, bool tells_source);
  static void tell_sources(std::span<const Call> calls);
  void check_alive();
  std::chrono::milliseconds timeout_of(const Call& call) const {
    return call.timeout.count() == 0 ? options_.timeout : std::min(call.timeout, kForEver);
  }
  std::chrono::milliseconds timeout_of(std::span<const Call> calls) const;  // the shortest
  void enqueue(std::span<const Call> calls);
  Work start_on_device(std::span<const Call> calls);
  const comm::PreparedCall& prepare(const Call& call) {
    comm::PreparedCall& place = prepared_.place(call);
    return place.is_of(call) && call.timeout.count() >= 0 ? place : prepare(call, place);
  }
  const comm::PreparedCall& prepare(const Call& call, comm::PreparedCall& place) const;
  void choose_way(const Call& call, comm::PreparedCall& prepared) const;
  void choose_way_between(const Call& call, comm::PreparedCall& prepared) const;
  [[gnu::always_inline]] inline void run_collective(const comm::PreparedCall& prepared, const Call& call);
  [[gnu::always_inline]] inline void run_short(const comm::PreparedCall& prepared, const Call& call);
  void run_long(const comm::PreparedCall& prepared, const Call& call, bool tries_direct);
  // True: straight between the ranks' buffers.
  bool run_way(const comm::PreparedCall& prepared, const Call& call, std::uint64_t past);
  void explain(const comm::PreparedCall& prepared, const Call& call, bool direct);
  template <class F>
  [[gnu::always_inline]] inline void guarded(F&& body);
  [[noreturn]] void fail(const Error& error);
  std::exception_ptr failure();
  [[noreturn]] void throw_failure();  // everybody's, and leaves this rank's flight record

  const Origin origin_{};
  std::unique_ptr<comm::Team> team_;
  Bootstrap bootstrap_;
  comm::Ancestry ancestry_{bootstrap_};
  Options options_;
  comm::Config config_;
  const std::string named_;  // what configures the algorithm, in words; empty: nothing does
  comm::HostPrimitives primitives_;
  std::shared_ptr<comm::Windows> windows_ = std::make_shared<comm::Windows>();
  comm::BoardCollectives board_;
  comm::TwoLevel two_level_;
  comm::ShortCalls short_calls_;
  comm::PreparedCalls prepared_;
  comm::FlightRecorder recorder_;
  comm::ChoiceLog choices_;
  std::uint64_t sequence_ = 0;
  int children_ = 0;
  std::shared_ptr<comm::FlightRecords> records_ = comm::FlightRecords::of_process();
  std::atomic<bool> recorded_{false};  // the records have been written, for this failure
  std::mutex checking_;                // check() may come from any thread, at any time
  std::recursive_mutex device_calls_;  // held for each; a turn may be taken with it, not the other way round
  comm::MonitoredBarrier monitored_barrier_;
  comm::Messages messages_;
  comm::Engine engine_;  // its thread uses everything above
  std::unique_ptr<comm::device::DeviceEngine>
      device_;  // goes first: it uses the host side until its kernels have ended
};

}  // namespace rondo::detail
