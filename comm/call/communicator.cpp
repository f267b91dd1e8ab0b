// SPDX-License-Identifier: Apache-2.0
#include <rondo/communicator.hpp>

#include <fmt/format.h>

#include <cstring>

#include "comm/base/duration.hpp"
#include "comm/base/majority.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/device/memory/window_memory.hpp"
#include "comm/node/memory/host_window.hpp"
#include "comm/setup/create.hpp"

namespace rondo {

struct Group::Recorded {
  std::vector<comm::OwnedCall> calls;
};

struct detail::WindowState {
  struct Memory {
    comm::HostWindow on_host;
    comm::device::WindowMemory on_device;  // where the communicator is on one
  };
  OfThisProcess<Memory> memory{std::make_unique<Memory>()};
};

namespace {

detail::CommunicatorImpl& member(const std::unique_ptr<detail::CommunicatorImpl>& impl) {
  if (!impl) throw Error(ErrorCode::invalid_argument, "this communicator is empty: the rank is not a member of it");
  return *impl;
}

// In a child nobody runs the call.
detail::WorkState& running(detail::WorkState& state) {
  if (!state.origin.is_here()) {
    throw Error(ErrorCode::invalid_argument,
                "this process is a forked child: the call was started by its parent and is known there alone");
  }
  return state;
}

// A timeout of the call's own stays.
Call within(Call call, std::chrono::milliseconds timeout) {
  if (call.timeout.count() == 0) call.timeout = timeout;
  return call;
}
// 0: the communicator's.
std::chrono::milliseconds checked(std::string_view name, std::chrono::milliseconds timeout) {
  return timeout.count() == 0 ? timeout : checked_duration(name, timeout);
}

// Symmetric by agreement: ranks that ask for different sizes learn of it here.
std::shared_ptr<detail::WindowState> allocate_together(detail::CommunicatorImpl& impl, std::size_t bytes) {
  std::vector<std::size_t> sizes;
  for (const auto& said : impl.all_gather_bytes(std::as_bytes(std::span(&bytes, 1)))) {
    std::memcpy(&sizes.emplace_back(), said.data(), sizeof bytes);
  }
  if (const Majority majority = find_majority_of(sizes); !majority.others.empty()) {
    const auto usual = static_cast<std::size_t>(majority.most.front()),
               odd = static_cast<std::size_t>(majority.others.front());
    throw mismatch_of(majority, fmt::format("allocate: rank {} asked for {} bytes where rank {} asked for {}", odd,
                                            sizes[odd], usual, sizes[usual]));
  }
  auto state = std::make_shared<detail::WindowState>();
  if (auto* device = impl.device()) {
    state->memory->on_device = comm::device::allocate(*device, bytes);
  } else {
    state->memory->on_host = comm::allocate_on_host(impl, bytes);
  }
  return state;
}

void forget_in_child(std::unique_ptr<detail::CommunicatorImpl>& impl) {
  if (impl && !impl->is_here()) forks::forget(impl.release());
}

}  // namespace

void Work::wait() {
  if (state_) running(*state_).wait();
}
bool Work::wait_for(std::chrono::milliseconds duration) {
  if (duration.count() != 0) duration = checked_duration("wait_for: duration", duration);
  return !state_ || running(*state_).wait_for(duration);
}
bool Work::done() const { return !state_ || running(*state_).done(); }
std::exception_ptr Work::error() const { return state_ ? running(*state_).error() : nullptr; }
int Work::source() const { return state_ ? running(*state_).source() : -1; }
Work::Times Work::times() const { return state_ ? running(*state_).times() : Times{}; }

void Work::on_done(std::function<void(std::exception_ptr)> callback) {
  if (state_) return running(*state_).on_done(std::move(callback));
  callback(nullptr);
}

int Async::rank() const { return impl_->rank(); }
int Async::world_size() const { return impl_->world_size(); }
Work Async::submit(const Call& call) { return impl_->start(within(call, timeout_)); }

int Within::rank() const { return impl_->rank(); }
int Within::world_size() const { return impl_->world_size(); }
void Within::submit(const Call& call) { impl_->submit(within(call, timeout_)); }

Group::Group(detail::CommunicatorImpl& impl, std::chrono::milliseconds timeout)
    : impl_(&impl), timeout_(timeout), recorded_(std::make_unique<Recorded>()) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;
int Group::rank() const { return impl_->rank(); }
int Group::world_size() const { return impl_->world_size(); }
Group::Recorded& Group::recorded() {
  if (recorded_) return *recorded_;
  throw Error(ErrorCode::invalid_argument, "this group was moved elsewhere: use the one that it went to");
}
void Group::submit(const Call& call) { recorded().calls.emplace_back(within(call, timeout_)); }
void Group::end() {
  const auto calls = std::exchange(recorded().calls, {});
  impl_->run_group(calls);
}
Work Group::start() { return impl_->start_group(std::exchange(recorded().calls, {})); }

Communicator::Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  forget_in_child(impl_);
  impl_ = std::move(other.impl_);
  return *this;
}
Communicator::~Communicator() { forget_in_child(impl_); }
Communicator::Communicator(std::unique_ptr<detail::CommunicatorImpl> impl) : impl_(std::move(impl)) {}

int Communicator::rank() const { return member(impl_).rank(); }
int Communicator::world_size() const { return member(impl_).world_size(); }
int Communicator::local_rank() const { return member(impl_).team().placement(rank()).local_rank; }
int Communicator::node() const { return member(impl_).team().placement(rank()).node; }
int Communicator::local_size() const {
  comm::Team& team = member(impl_).team();
  int count = 0;
  for (int r = 0; r < team.size(); ++r) count += team.placement(r).node == team.placement(team.rank()).node ? 1 : 0;
  return count;
}

std::vector<std::vector<std::byte>> Communicator::all_gather_bytes(std::span<const std::byte> value) {
  std::vector<std::vector<std::byte>> values;
  member(impl_).in_one_turn([&] { values = member(impl_).all_gather_bytes(value); });
  return values;
}
Async Communicator::async(std::chrono::milliseconds timeout) {
  return {member(impl_), checked("async: timeout", timeout)};
}
Group Communicator::group(std::chrono::milliseconds timeout) {
  return {member(impl_), checked("group: timeout", timeout)};
}
Within Communicator::within(std::chrono::milliseconds timeout) {
  return {member(impl_), checked_duration("within: timeout", timeout)};
}
void Communicator::synchronize(Stream stream) { member(impl_).synchronize(stream); }
Device Communicator::device() const { return member(impl_).options().device; }
Communicator Communicator::split(int color, int key) {
  Communicator part;
  member(impl_).in_one_turn([&] { part = comm::split(member(impl_), color, key); });
  return part;
}
Communicator Communicator::shrink() { return comm::shrink(member(impl_)); }
Communicator Communicator::grow(int world_size, std::chrono::milliseconds timeout) {
  timeout = checked("grow: timeout", timeout);
  Communicator larger;
  member(impl_).in_one_turn([&] { larger = comm::grow(member(impl_), world_size, timeout); });
  return larger;
}
void Communicator::set_timeout(std::chrono::milliseconds timeout) { member(impl_).set_timeout(timeout); }
void Communicator::monitored_barrier(std::chrono::milliseconds timeout, bool waits_for_all) {
  member(impl_).monitored_barrier(timeout, waits_for_all);
}
void Communicator::abort() { member(impl_).abort(); }
void Communicator::check() { member(impl_).check(); }
std::string Communicator::flight_record() const { return member(impl_).flight_record(); }
void Communicator::submit(const Call& call) { member(impl_).submit(call); }

std::vector<Communicator> Communicator::local(int world_size, Options options) {
  return comm::make_local(world_size, options);
}

std::shared_ptr<detail::WindowState> Communicator::allocate_bytes(std::size_t count, std::size_t element) {
  constexpr std::size_t kMost = std::size_t{1} << 48;  // what is added for all ranks is far from overflowing
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element, &bytes) || bytes > kMost)
    throw Error(ErrorCode::invalid_argument, "allocate: the count is beyond all memory");
  std::shared_ptr<detail::WindowState> state;
  member(impl_).in_one_turn([&] { state = allocate_together(*impl_, bytes); });
  return state;
}
void* Communicator::window_data(const detail::WindowState& state) {
  const auto& memory = *state.memory;
  return memory.on_host.data() != nullptr ? memory.on_host.data() : memory.on_device.data();
}
Registration Communicator::register_memory(void* data, std::size_t bytes) {
  member(impl_).check_process();
  auto* device = member(impl_).device();
  if (device == nullptr) return {};
  if (data == nullptr && bytes != 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("register_memory: the data of {} bytes is null", bytes));
  auto state = std::make_shared<detail::WindowState>();
  member(impl_).in_one_turn([&] { state->memory->on_device = comm::device::register_memory(*device, data, bytes); });
  return Registration(std::move(state));
}

detail::CommunicatorImpl& detail::impl_of(Communicator& communicator) { return *communicator.impl_; }

}  // namespace rondo
