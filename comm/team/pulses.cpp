// SPDX-License-Identifier: Apache-2.0
#include "comm/team/pulses.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "comm/transport/sockets.hpp"

namespace rondo::comm {

namespace {

// What its control connection has to say may have been lost several times.
constexpr int kPatiencesForWord = 8;

}  // namespace

Pulses::Pulses(std::shared_ptr<Monitor> monitor, std::chrono::milliseconds patience, Events events, System& system)
    : system_(system), monitor_(std::move(monitor)), patience_(patience), events_(std::move(events)) {}

// Within a host no kernel is silent.
void Pulses::add(int peer, int node, std::array<Fd, 2> sockets, int control) {
  if (stays_on_host(sockets[0].get())) return;
  Pulse pulse({sockets[0].get(), sockets[1].get(), control}, patience_, system_);
  peers_.push_back({peer, node, std::move(sockets), std::move(pulse)});
}

void Pulses::start() {
  if (peers_.empty()) return;
  timer_ = system_.make_alarm();
  set_alarm();
  watch_ = monitor_->watch(timer_.get(), [this] { return tick(); });
}

void Pulses::stop() {
  if (timer_) monitor_->unwatch(watch_);
}

void Pulses::set_alarm() const {
  auto next = Pulse::Time::max();
  for (const Peer& peer : peers_) {
    if (!peer.reported)
      next = std::min(next, peer.ended_at ? *peer.ended_at + kPatiencesForWord * patience_ : peer.pulse.next());
  }
  if (next == Pulse::Time::max()) return;
  system_.set_alarm(timer_, next);
}

bool Pulses::tick() {
  std::uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof expirations) < 0) return true;
  const auto now = system_.now();
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
