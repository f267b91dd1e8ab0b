// SPDX-License-Identifier: Apache-2.0
#include "comm/team/pulses.hpp"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "comm/base/system_error.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo::comm {

namespace {

using Clock = std::chrono::steady_clock;

// What its control connection has to say may have been lost several times.
constexpr int kPatiencesForWord = 8;

}  // namespace

Pulses::Pulses(std::shared_ptr<Monitor> monitor, std::chrono::milliseconds patience, Events events)
    : monitor_(std::move(monitor)), patience_(patience), events_(std::move(events)) {}

// Within a host no kernel is silent.
void Pulses::add(int peer, int node, std::array<Fd, 2> sockets, int control) {
  if (stays_on_host(sockets[0])) return;
  Pulse pulse({sockets[0].get(), sockets[1].get(), control}, patience_);
  peers_.push_back({peer, node, std::move(sockets), std::move(pulse)});
}

void Pulses::start() {
  if (peers_.empty()) return;
  timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_) throw_errno("cannot make a timer");
  set_alarm();
  watch_ = monitor_->watch(timer_.get(), [this] { return tick(); });
}

void Pulses::stop() {
  if (timer_) monitor_->unwatch(watch_);
}

// steady_clock and the timer are the same clock. A time of 0 would disarm it.
void Pulses::set_alarm() const {
  auto next = Clock::time_point::max();
  for (const Peer& peer : peers_) {
    if (!peer.reported)
      next = std::min(next, peer.ended_at ? *peer.ended_at + kPatiencesForWord * patience_ : peer.pulse.next());
  }
  if (next == Clock::time_point::max()) return;
  const auto since = std::max(next.time_since_epoch(), Clock::duration(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const itimerspec alarm{{}, {seconds.count(), std::chrono::nanoseconds(since - seconds).count()}};
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &alarm, nullptr) != 0) throw_errno("cannot set a timer");
}

bool Pulses::tick() {
  std::uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof expirations) < 0) return true;
  const auto now = Clock::now();
  for (Peer& peer : peers_) {
    if (!peer.reported) look_at(peer, now);
  }
  set_alarm();
  return true;
}

void Pulses::look_at(Peer& peer, Pulse::Time now) {
  if (peer.ended_at) {
    if (now < *peer.ended_at + kPatiencesForWord * patience_) return;
    peer.reported = true;
    return events_.ended(peer.rank);
  }
  if (now < peer.pulse.next()) return;
  const Pulse::State state = peer.pulse.look(now);
  if (state == Pulse::State::ended) peer.ended_at = now;
  if (state != Pulse::State::silent || hears_node_of(peer)) return;
  peer.reported = true;
  const double silence_s = std::chrono::duration<double>(now - peer.pulse.heard_at()).count();
  events_.silent(peer.rank,
                 fmt::format("its host has not answered for {:.1f} s ({} probes)", silence_s, peer.pulse.probes()),
                 !hears_others(peer));
}

// A host that answers another of our connections is not silent.
bool Pulses::hears_node_of(const Peer& silent) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return p.node == silent.node && p.pulse.heard_at() > *silent.pulse.doubted_since();
  });
}

// Whether another host has answered since this one does not; with one only, nobody knows which of the two was cut off.
bool Pulses::hears_others(const Peer& silent) const {
  const bool several = std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.node != silent.node; });
  return !several || std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return p.node != silent.node && (p.ended_at || p.pulse.heard_at() > *silent.pulse.doubted_since());
  });
}

}  // namespace rondo::comm
