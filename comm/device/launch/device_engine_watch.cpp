// SPDX-License-Identifier: Apache-2.0
// What has become of the launches: by looks from the watcher's thread, and from whoever waits.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/base/log.hpp"
#include "comm/device/launch/device_engine.hpp"
#include "comm/device/launch/device_work.hpp"

namespace rondo::comm::device {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kReportAfter = 2000ms;
constexpr std::chrono::milliseconds kBelief = 500ms;      // that a kernel still waits, since it last said so
constexpr std::chrono::milliseconds kSuspicion = 1000ms;  // that a kernel waits for a rank that has left

}  // namespace

// What kernels of a level say, as the team says it.
int DeviceEngine::rank_in_whole(int peer) const {
  return peer < 0 || !is_level() ? peer : parts_.ranks[static_cast<std::size_t>(peer)];
}

std::uint64_t DeviceEngine::number_in_whole(std::uint64_t number) const {
  return counts_apart() ? numbers_.of(number).value_or(number) : number;
}

kernels::device::Fault DeviceEngine::in_whole(kernels::device::Fault fault) const {
  fault.peer = rank_in_whole(fault.peer);
  fault.mine.sequence = number_in_whole(fault.mine.sequence);
  fault.theirs.sequence = number_in_whole(fault.theirs.sequence);
  return fault;
}

Event DeviceEngine::record_last_use() {
  if (launches_ == 0) return {};
  const std::lock_guard lock(enqueued_);
  const DeviceScope scope(api_, parts_.device.index);
  Event event = make_event(api_, parts_.device.index);
  check(api_.EventRecord(event.get(), last_stream_), "recording an event");
  return event;
}

bool DeviceEngine::has_passed(const Event& event) const {
  const cudaError_t code = api_.EventQuery(event.get());
  if (code == cudaErrorNotReady) return false;
  check(code, "looking at an event");
  return true;
}

bool DeviceEngine::await_idle(std::chrono::milliseconds patience) {
  return poll_for(patience, [&] {
    inspect();
    const std::lock_guard lock(inspecting_);
    return !is_busy();
  });
}

bool DeviceEngine::is_busy() {
  const std::uint64_t launches = launches_;
  if (launches == done_launches_) return false;
  const cudaError_t code = api_.EventQuery(last_.get());
  if (code == cudaErrorNotReady) return true;
  done_launches_ = launches;
  if (code != cudaSuccess) {
    parts_.team->fail(ErrorCode::cuda, rank_,
                      fmt::format("rank {}: {} device {}: a kernel failed: {}", rank_, api_.name, parts_.device.index,
                                  api_.GetErrorString(code)));
  }
  return false;
}

bool DeviceEngine::inspect() {
  if (parts_.levels) parts_.levels->inspect();
  const std::lock_guard lock(inspecting_);
  const bool busy = is_busy();  // before the fault: a kernel that has ended has written it
  const kernels::device::Fault fault = fault_seen_ ? kernels::device::Fault{} : read_fault(parts_.regions->page());
  if (fault.kind != kernels::device::FaultKind::none) {
    fault_seen_ = true;
    if (fault.kind != kernels::device::FaultKind::aborted) {
      const Error error = error_of(in_whole(fault), *parts_.team, parts_.terms, std::chrono::milliseconds(timeout_ms_));
      parts_.team->fail(error);
    }
  }
  if (parts_.team->failure().raised()) {
    abort();
  } else if (busy) {
    look_at_wait();
  }
  const bool more = busy || *graphs_ != 0;
  if (traffic_ && !more && launching_ == 0) traffic_->end();
  return more;
}

bool DeviceEngine::tell_works(bool at_end) {
  std::vector<std::shared_ptr<DeviceWork>> ended;
  bool more = false;
  {
    const std::lock_guard lock(status_->mutex);
    auto& awaited = status_->awaited;
    const auto from =
        at_end ? awaited.begin()
               : std::partition(awaited.begin(), awaited.end(), [](const auto& work) { return !work->done(); });
    ended.assign(from, awaited.end());
    awaited.erase(from, awaited.end());
    more = !awaited.empty();
  }
  for (const auto& work : ended) work->tell();
  return more;
}

// Block 0 says it when it has waited 10 ms for a peer.
void DeviceEngine::look_at_wait() {
  kernels::device::HostPage& page = parts_.regions->page();
  if (const std::uint64_t still = still_waiting(page); still != affirmed_) {
    affirmed_ = still;
    still_waiting_ = Clock::now();
  }
  if (const auto told = take_waiting(page)) {
    waiting_ = *told;
    waiting_.peer = rank_in_whole(told->peer);
    waiting_.signature.sequence = number_in_whole(told->signature.sequence);
    waiting_since_ = Clock::now();
    reported_ = false;
    // Others compare by number, and know no kernel's own.
    announced_ = counts_apart() && told->signature.sequence != 0 && !numbers_.of(told->signature.sequence);
    suspect_ = -1;
    return;
  }
  if (waiting_.peer < 0 || Clock::now() - still_waiting_ > kBelief) {
    suspect_ = -1;
    return;
  }
  look_for_departure(waiting_);
  if (!std::exchange(announced_, true)) parts_.team->announce_device_wait(waiting_.signature);
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - waiting_since_);
  if (reported_ || waited < kReportAfter) return;
  reported_ = true;
  log::warn("{}", report_of(waiting_, *parts_.team, waited));
}

// What a departed rank had sent is there, so we do not wait for long any more unless it had not.
void DeviceEngine::look_for_departure(const Waiting& waiting) {
  if (waiting.peer == rank_ || !parts_.team->departed(waiting.peer)) return;
  if (suspect_ != waiting.peer) suspected_since_ = Clock::now();
  if (suspect_ == waiting.peer && Clock::now() - suspected_since_ > kSuspicion) {
    const Error error = departure_of(waiting, *parts_.team);
    parts_.team->fail(error);
  }
  suspect_ = waiting.peer;
}

}  // namespace rondo::comm::device
