// SPDX-License-Identifier: Apache-2.0
// A communicator's device side: launches kernels on the caller's streams, and turns what they leave in the host page
// into the communicator's one failure, and that failure into their end. Called by one thread at a time; abort(),
// synchronize() and record_last_use() by any; inspect() also by the watcher's.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/call/choice_log.hpp"
#include "comm/call/engine.hpp"
#include "comm/call/flight_recorder.hpp"
#include "comm/device/host/host_way.hpp"
#include "comm/device/launch/faults.hpp"
#include "comm/device/launch/launch_way.hpp"
#include "comm/device/launch/launcher.hpp"
#include "comm/device/launch/watcher.hpp"
#include "comm/device/levels/levels.hpp"
#include "comm/device/levels/numbers.hpp"
#include "comm/device/memory/budget.hpp"
#include "comm/device/memory/frees.hpp"
#include "comm/device/memory/regions.hpp"
#include "comm/device/memory/windows.hpp"
#include "comm/device/proxy/proxy.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm::device {

class DeviceEngine;
class DeviceWork;

// What an engine and the Works it made have in common, and Works may outlive the engine.
struct Status {
  std::mutex mutex;
  DeviceEngine* engine = nullptr;                    // null: it is gone
  std::exception_ptr error;                          // what it had failed with by then
  std::vector<Event> spare;                          // for Works to come
  std::vector<std::shared_ptr<DeviceWork>> awaited;  // that have callbacks
};

class DeviceEngine {
 public:
  // For kernels that were told to end; what holds a stream longer is not ours.
  static constexpr std::chrono::seconds kDrain{5};
  struct Parts {
    const cuda::Api* api = nullptr;
    rondo::Device device;  // the index is this process's
    Team* team = nullptr;  // of the host communicator; outlives the engine
    FlightRecorder* recorder = nullptr;
    ChoiceLog* choices = nullptr;
    Terms terms;
    bool shares_process = false;         // with another rank, whichever device that uses
    bool shares_default_stream = false;  // with another rank of this process: they would wait for each other there
    std::unique_ptr<Regions> regions;
    std::unique_ptr<Windows> windows;
    std::unique_ptr<Proxy> proxy;  // null: no rank is on another node
    // Of an engine that is a level of another's: the team's ranks by its own numbers, and the windows of the whole.
    std::vector<int> ranks{};
    const Windows* whole_windows = nullptr;
    std::unique_ptr<Levels> levels;     // null: there is one. It goes before all that is above
    std::unique_ptr<HostWay> host_way;  // null: no call goes by host memory
  };
  explicit DeviceEngine(Parts parts);
  // Bounded: kernels that are nearly done get a moment, the others are aborted. What a busy device or a live graph
  // still holds is kept for good, and the log says so.
  ~DeviceEngine();
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;

  rondo::Device device() const { return parts_.device; }
  int driver() const { return berth_->driver(); }
  bool takes_turns() const { return berth_->users() > 1; }  // with other communicators

  // Error(invalid_argument): a buffer that the device cannot use, a group on several streams. Error(unsupported): a
  // graph is to hold calls that take turns with those of other communicators.
  void validate(std::span<const Call> calls);
  // Enqueues valid calls on the stream of the first; nobody waits. Messages first, then collectives in order. Calls in
  // a row that the same kernel runs are one launch, and messages join the collectives behind them if those run on
  // Simple. Whatever it throws, the communicator has failed.
  void run(std::span<const Call> calls, std::chrono::milliseconds timeout);
  std::shared_ptr<rondo::detail::WorkState> start(std::span<const Call> calls, std::chrono::milliseconds timeout);

  // As a level: calls that are part of one of the whole communicator's, on the stream of that, behind which the caller
  // puts its own launches in order.
  void run_part(std::span<const Call> calls, const Signature& whole, cudaStream_t stream,
                std::chrono::milliseconds timeout);
  std::string_view kernel_for(const Call& call) const;
  std::byte* failed_word() const { return parts_.regions->failed_word(); }

  // Until everything that is on the stream now is done, at most `patience`. Throws the communicator's failure.
  void synchronize(rondo::Stream stream, std::chrono::milliseconds patience);
  void abort();
  // Kernels' faults become the communicator's failure, and that one the kernels' end. True: some may still be running.
  bool inspect();

  Windows& windows() { return *parts_.windows; }
  std::shared_ptr<Status> status() const { return status_; }
  Event record_last_use();  // of the latest launch; empty: there was none

  // For Works.
  void look_soon() { watcher_.wake(); }
  const Team& team() const { return *parts_.team; }
  bool has_passed(const Event& event) const;

 private:
  using Clock = std::chrono::steady_clock;
  class Launching;
  void enqueue(std::span<const Call> calls, cudaStream_t stream, std::chrono::milliseconds timeout);
  void add(Batch& batch, const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout);
  void note(const Signature& signature, KernelKind kernel);
  void note_way(const Signature& signature);
  template <class Way, class Why>
  void explain(const Call& call, Way way, Why why);
  void explain_choice(const Call& call, const Choice& choice);
  void add_by_host(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout);
  void add_levels(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout);
  bool is_level() const { return !parts_.ranks.empty(); }
  bool counts_apart() const { return is_level() || parts_.levels != nullptr; }
  const Windows& windows_in_use() const { return is_level() ? *parts_.whole_windows : *parts_.windows; }
  int rank_in_whole(int peer) const;
  std::uint64_t number_in_whole(std::uint64_t number) const;
  kernels::device::Fault in_whole(kernels::device::Fault fault) const;
  void launch(Batch& batch, cudaStream_t stream);
  void pass_failure_to(std::byte* failed_word, cudaStream_t stream);
  void hold_in_graph(cudaStream_t stream);
  void enqueue_in_turn(std::span<const Call> calls, cudaStream_t stream, std::chrono::milliseconds timeout);
  void enqueue_in_capture(std::span<const Call> calls, cudaStream_t stream, std::chrono::milliseconds timeout);
  [[noreturn]] void refuse_capture() const;
  bool is_capturing(cudaStream_t stream) const;
  cudaStream_t stream_of(rondo::Stream stream);
  void check_buffers(const Call& call);
  void check_buffer(const Call& call, const void* data, std::size_t bytes, std::string_view name);
  void check(cudaError_t code, std::string_view what) const;
  void await_event(cudaStream_t stream, cudaEvent_t event, std::string_view what);  // by the stream
  bool is_busy();
  bool tell_works(bool at_end);  // true: some are still awaited
  void look_at_wait();
  void look_for_departure(const Waiting& waiting);
  bool await_idle(std::chrono::milliseconds patience);

  Parts parts_;
  const cuda::Api& api_;
  int rank_;
  std::shared_ptr<Berth> berth_;  // that its launches are made on
  std::shared_ptr<Status> status_ = std::make_shared<Status>();
  std::shared_ptr<std::atomic<int>> graphs_ = std::make_shared<std::atomic<int>>(0);  // live ones with calls of ours
  Stream own_stream_;     // stands for the default stream where that one is shared
  Event default_passed_;  // the default stream has come so far
  Event last_;            // after the latest launch: they run one after the other, so it stands for all
  std::mutex enqueued_;   // guards the next: who gives a window back may be another thread
  cudaStream_t last_stream_ = nullptr;
  Event captured_;  // the same of the latest capture with calls of ours, which has that number
  cudaStream_t captured_stream_ = nullptr;
  LaunchWay way_;
  bool behind_event_ = false;  // the next launch is
  unsigned long long capture_ = 0;
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::int64_t> timeout_ms_{0};
  std::uint64_t calls_ = 0;           // collectives enqueued, for the flight record
  bool capturing_ = false;            // what is being enqueued
  std::byte* failed_word_ = nullptr;  // of the regions that were used last, where there are levels; null: not known
  const Signature* whole_ = nullptr;  // of the call that parts are being enqueued of
  Numbers numbers_;                   // of calls, by the kernels' own; where it counts_apart()
  bool may_be_alone_ = false;         // the latest ended, perhaps, before the others came
  struct KnownBuffer {
    const void* data = nullptr;
    std::size_t room = 0;  // bytes from there to the end of the memory
  };
  std::array<KnownBuffer, 64> known_buffers_{};

  std::mutex inspecting_;           // guards what follows
  std::optional<Traffic> traffic_;  // where there are other ranks in this process
  int launching_ = 0;               // calls of run() under way
  std::uint64_t done_launches_ = 0;
  bool fault_seen_ = false;
  Waiting waiting_;  // the latest told
  Clock::time_point waiting_since_, still_waiting_;
  std::uint64_t affirmed_ = 0;
  bool reported_ = false, announced_ = false;
  int suspect_ = -1;
  Clock::time_point suspected_since_;
  Watcher watcher_;  // last: its thread uses everything above
};

// Looks until `passed` says true; false: after `patience`. Spins a little, then sleeps between looks: the runtime has
// no wait with a bound.
template <class Passed>
bool poll_for(std::chrono::milliseconds patience, Passed&& passed) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (int look = 0;; ++look) {
    if (passed()) return true;
    if (look < 32) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(look, 200)));
  }
}

}  // namespace rondo::comm::device
