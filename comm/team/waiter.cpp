// SPDX-License-Identifier: Apache-2.0
#include "comm/team/waiter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/base/only_caller.hpp"
#include "comm/base/system_error.hpp"

namespace rondo::comm {
namespace {

using namespace std::chrono_literals;
constexpr auto kFirstInspection = 10ms;
constexpr auto kInspectEvery = 50ms;  // half of what may pass until a death is known
constexpr auto kAnnounceAtMost = 1000ms;
constexpr auto kReportAfter = 2s;

// Where nothing wakes the rank: each twice as long as the one before.
constexpr auto kFirstNap = 50us;
constexpr auto kLongestNap = 2ms;

}  // namespace

void DeathWatch::look(Team& team, std::span<const Blocked> blocked) {
  constexpr std::size_t kAtATime = 8;
  for (std::size_t i = 0; i < std::min(kAtATime, blocked.size()); ++i)
    team.look_whether_it_lives(blocked[next_++ % blocked.size()].peer);
  team.failure().check();
}

// A host's other connections have ended, and one alone is answered twice a second at most: 14 times in so long.
void FarewellWatch::look(Team& team, std::span<const Blocked> blocked) {
  constexpr int kPatiences = 4;
  const auto left = std::find_if(blocked.begin(), blocked.end(), [&](const Blocked& b) {
    return b.wake.by == Wake::By::descriptor && b.peer != team.rank() && team.departed(b.peer);
  });
  if (left == blocked.end()) return pulse_.reset();
  if (!pulse_ || socket_ != left->wake.fd) {
    socket_ = left->wake.fd;
    pulse_.emplace(std::vector{socket_}, kPatiences * team.link_patience(), team.system());
  }
  const auto now = team.system().now();
  if (now < pulse_->next() || pulse_->look(now) != Pulse::State::silent) return;
  throw Error(ErrorCode::peer_lost,
              fmt::format("rank {} left, and what it had sent to rank {} before does not come: its host has not "
                          "answered for {:.1f} s ({} probes)",
                          left->peer, team.rank(), std::chrono::duration<double>(now - pulse_->heard_at()).count(),
                          pulse_->probes()),
              left->peer);
}

Waiter::Waiter(Team& team, const Config& config)
    : team_(team), spins_(team.crowded() ? 0 : config.spin), yields_(config.yields) {}

void Waiter::begin(const Signature& signature, bool collective, std::chrono::milliseconds timeout) {
  signature_ = signature;
  collective_ = collective;
  timeout_ = timeout;
  timing_ = reported_ = false;
  suspect_ = -1;
}

bool Waiter::took_a_slice(std::uint64_t before) const {
  const auto microseconds = scale_.to_microseconds();
  return microseconds(read_ticks()) - microseconds(before) >= kSliceMicroseconds;
}

void Waiter::rest() {
  round_ = 0;
  suspect_ = -1;
  disarm();
  if (!std::exchange(known_, false)) return;
  team_.own_line().alone_in.store(0, std::memory_order_release);
  team_.own_line().waits_in.store(0, std::memory_order_release);
  alone_ = false;
}

void Waiter::disarm() {
  if (std::exchange(armed_, false)) team_.own_line().sleeping.store(0, std::memory_order_relaxed);
}

void Waiter::sleep(std::span<const Blocked> blocked) {
  if (!armed_) {  // the caller looks once more before we sleep
    team_.bells().announce_sleep(team_.own_index());
    armed_ = true;
    nap_ = kFirstNap;
    return;
  }
  if (!timing_) {
    timing_ = true;
    started_ = team_.system().now();
    next_inspection_ = next_announcement_ = started_ + kFirstInspection;
    announce_every_ = kFirstInspection;
  }
  polled_.assign(1, {team_.bells().fd(team_.own_index()), POLLIN, 0});
  const auto now = team_.system().now();
  auto wake_at = std::min(next_inspection_, started_ + timeout_);
  for (const Blocked& b : blocked) {
    if (b.wake.by == Wake::By::descriptor) polled_.push_back({b.wake.fd, b.wake.events, 0});
    if (b.wake.by == Wake::By::looking) wake_at = std::min(wake_at, now + nap_);
  }
  nap_ = std::min<Clock::duration>(2 * nap_, kLongestNap);
  const int ready = team_.system().poll(polled_, wake_at - now);
  if (ready < 0 && errno != EINTR) throw_errno("cannot wait for peers");
  if (polled_[0].revents != 0) team_.bells().drain(team_.own_index());
  if (ready > 0) {  // perhaps by what it waits for
    round_ = 1;
    disarm();
  }
  const auto then = team_.system().now();
  started_ += stood_still(wake_at, then);
  if (then >= next_inspection_ || (ready == 0 && then >= started_ + timeout_)) inspect(blocked);
}

// What a look finds is the communicator's failure.
template <class Look>
void Waiter::look(Look look) {
  try {
    look();
  } catch (const Error& error) {
    fail(error);
  }
}

void Waiter::inspect(std::span<const Blocked> blocked) {
  team_.failure().check();
  const auto now = team_.system().now();
  next_inspection_ = now + kInspectEvery;
  if (collective_) {
    known_ = true;
    alone_ = alone_ || is_only_caller();
    team_.own_line().alone_in.store(alone_ ? signature_.sequence : 0, std::memory_order_release);
    team_.own_line().waits_in.store(signature_.sequence, std::memory_order_release);
    look_for_mismatch();
    if (alone_) look([&] { team_.look_for_standoff(signature_); });
  }
  look_for_departures(blocked);
  look([&] { farewell_watch_.look(team_, blocked); });
  death_watch_.look(team_, blocked);
  if (collective_ && now >= next_announcement_) {
    alone_ ? team_.announce_waiting_alone(signature_) : team_.announce_waiting(signature_);
    announce_every_ = std::min(announce_every_ * 4, kAnnounceAtMost);
    next_announcement_ = now + announce_every_;
  }
  if (now >= started_ + timeout_) {
    const Report late = report(blocked);
    fail({ErrorCode::timeout, late.sentence, late.ranks.empty() ? -1 : late.ranks.front(), late.ranks});
  }
  if (!reported_ && now >= started_ + kReportAfter) {
    reported_ = true;
    log::warn("{}", report(blocked).sentence);
  }
}

void Waiter::look_for_mismatch() {
  Signature theirs;
  for (int peer = 0; peer < team_.size(); ++peer) {
    if (peer == team_.rank() || !team_.signature_of(peer, signature_.sequence, theirs)) continue;
    const std::string sentence = compare(team_.rank(), signature_, peer, theirs);
    if (!sentence.empty()) fail(team_.judge({sentence, peer, signature_}));
  }
}

// What a departed rank had sent through the segment is still on its way to us the first time we see it gone. By other
// links it may take any time; there the end of the link tells, which comes after it.
void Waiter::look_for_departures(std::span<const Blocked> blocked) {
  const auto gone = std::find_if(blocked.begin(), blocked.end(), [&](const Blocked& b) {
    return b.wake.by == Wake::By::doorbell && b.peer != team_.rank() && team_.shares_memory(b.peer) &&
           team_.departed(b.peer);
  });
  if (gone == blocked.end()) return;
  if (suspect_ == gone->peer) {
    fail({ErrorCode::peer_lost,
          fmt::format("rank {} left while rank {} was waiting for it in {}", gone->peer, team_.rank(),
                      describe(signature_)),
          gone->peer});
  }
  suspect_ = gone->peer;
  next_inspection_ = team_.system().now() + kFirstInspection;
}

// A call that waits is not what others wait for: who is, they have to be asked.
Waiter::Report Waiter::report(std::span<const Blocked> blocked) const {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(team_.system().now() - started_);
  std::vector<Standing> standings;
  Report report;
  if (collective_) {
    standings = team_.inquire(signature_, kInquiry);
    report.ranks = find_late(standings, signature_.sequence);
  }
  if (report.ranks.empty()) {
    for (const Blocked& b : blocked) report.ranks.push_back(b.peer);
    std::sort(report.ranks.begin(), report.ranks.end());
    report.ranks.erase(std::unique(report.ranks.begin(), report.ranks.end()), report.ranks.end());
  }
  report.sentence = fmt::format("rank {} has waited {:.1f} s in {} for rank{} {}", team_.rank(),
                                static_cast<double>(waited.count()) / 1e3, describe(signature_),
                                report.ranks.size() == 1 ? "" : "s", fmt::join(report.ranks, ", "));
  if (!report.ranks.empty() && !standings.empty()) {
    const int first = report.ranks.front();
    report.sentence += describe_late(first, team_.placement(first), standings[static_cast<std::size_t>(first)]);
  }
  return report;
}

void Waiter::fail(const Error& error) {
  team_.fail(error);
  throw team_.failure().error();  // the first one, which may be another rank's
}

}  // namespace rondo::comm
