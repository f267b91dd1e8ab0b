// SPDX-License-Identifier: Apache-2.0
#include "comm/team/team.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "comm/team/team_remote.hpp"

namespace rondo::comm {

Team::Team(Parts parts) : parts_(std::move(parts)), failure_(parts_.rank, parts_.segment.failure(), parts_.bells) {
  const auto n = static_cast<std::size_t>(size());
  links_.resize(n);
  message_links_.resize(n);
  unread_.resize(n);
  remotes_.resize(n);
  processes_.resize(n);
  device_messages_.resize(n);
  for (auto& agreed : agreed_) agreed.resize(n);
  parts_.bells.prepare_sleep(own_index());
  if (!parts_.monitor) return;
  const auto remote = [this](int peer) -> Remote& { return *remotes_[static_cast<std::size_t>(peer)]; };
  Control::Events events;
  events.failed = [this](int, ErrorCode code, const Culprits& culprits, std::string_view sentence) {
    failure_.raise(code, culprits, sentence);  // whoever announced it told every rank
  };
  events.waiting = [this](int peer, const Signature& theirs, std::uint64_t alone_after) {
    on_waiting(peer, theirs);
    note_alone(peer, theirs, alone_after);
  };
  events.departed = [this, remote](int peer, const Signature& latest, bool gave_up) {
    if (latest.sequence != 0) on_waiting(peer, latest);
    remote(peer).given_up = gave_up;
    remote(peer).departed = true;
    parts_.bells.ring_both(own_index());
  };
  events.attends = [this](int peer, std::uint64_t entered, std::uint64_t verdict) {
    on_attendance(peer, entered, verdict);
  };
  events.apart = [this](int peer, std::uint64_t split) { on_apart(peer, split); };
  events.asked = [this](int peer, std::uint64_t question, const Signature& about) {
    on_question(peer, question, about);
  };
  events.answered = [this](int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags) {
    on_answer(peer, question, whom, at, flags);
  };
  events.aborted = [remote](int peer, std::uint64_t mark) { remote(peer).aborted = mark; };
  events.unmapped = [this, remote](int peer) {
    remote(peer).unmapped = true;
    parts_.bells.ring(own_index());
  };
  events.lost = [this](int peer, std::string_view reason) { on_loss(peer, reason); };
  control_ = std::make_unique<Control>(parts_.monitor, std::move(events));
  pulses_ = std::make_unique<Pulses>(
      parts_.monitor, parts_.link_patience,
      Pulses::Events{
          .silent = [this](int peer, std::string_view reason, bool alone) { on_silence(peer, reason, alone); },
          .ended =
              [this](int peer) {
                if (!departed(peer) && !lost(peer)) on_loss(peer, "its connections ended");
              },
      },
      system());
}

Team::~Team() {
  delist();
  if (parts_.monitor) parts_.monitor->stop_hearing(hearer_);
  take_leave();
  for (const int id : watch_ids_) parts_.monitor->unwatch(id);
  if (pulses_) pulses_->stop();
  if (control_) control_->stop();  // before control_ goes, which its events use
  system().join(judge_);
}

void Team::add_links(int peer, Links links) { links_[static_cast<std::size_t>(peer)] = std::move(links); }
void Team::add_message_links(int peer, Links links) { message_links(peer) = std::move(links); }

void Team::add_control(int peer, Fd control, std::unique_ptr<SecureStream> stream) {
  remotes_[static_cast<std::size_t>(peer)] = std::make_unique<Remote>();
  control_->add(peer, std::move(control), std::move(stream));
}

void Team::add_pulses(int peer, std::array<Fd, 2> pulses) {
  pulses_->add(peer, placement(peer).node, std::move(pulses), control_->socket(peer));
}

void Team::add_watch(int peer, Fd fd) { watches_.emplace_back(std::move(fd), peer); }

void Team::add_process(int peer, std::shared_ptr<const Fd> process) {
  processes_[static_cast<std::size_t>(peer)] = std::move(process);
}

void Team::start() {
  for (int peer = 0; peer < size(); ++peer) {
    const auto& process = processes_[static_cast<std::size_t>(peer)];
    if (process && shares_memory(peer)) watch(peer, process->get());
  }
  control_->start();
  pulses_->start();
  hearer_ = parts_.monitor->hear_aborts([this] { note_abort(); });
  for (const auto& [socket, peer] : watches_) watch(peer, socket.get());
  enlist();
}

std::string Team::whole_name(int peer) const {
  return fmt::format("rank {} (host {}, pid {})", peer, placement(peer).host, placement(peer).pid);
}

void Team::watch(int peer, int fd) {
  watch_ids_.push_back(parts_.monitor->watch(fd, [this, peer] {
    on_exit(peer);
    return false;
  }));
}

void Team::fail(ErrorCode code, const Culprits& culprits, std::string_view sentence) {
  if (code == ErrorCode::peer_lost && has_aborted(culprits.one)) {
    return fail(ErrorCode::aborted, culprits,
                fmt::format("{} called abort() on another communicator; {}", whole_name(culprits.one), sentence));
  }
  if (!failure_.raise(code, culprits, sentence) || !control_ || passed_on_.exchange(true)) return;
  control_->announce_failure(code, culprits, sentence);
}

void Team::abort() {
  fail(ErrorCode::aborted, rank(), fmt::format("rank {} called abort()", rank()));
  if (parts_.monitor) parts_.monitor->tell_abort();
}

void Team::pass_on_failure() {
  if (!control_ || passed_on_.exchange(true)) return;
  const Error error = failure_.error();
  control_->announce_failure(error.error_code(), {error.culprit(), error.culprits()}, error.what());
}

void Team::fail(const Error& error) { fail(error.error_code(), {error.culprit(), error.culprits()}, error.what()); }

void Team::await_verdict(int peer) const {
  constexpr auto kPatience = std::chrono::milliseconds(250);
  const auto until = system().now() + kPatience + kJudging;
  while (!failure_.raised() && !departed(peer) && !lost(peer) && sleep_until(until)) {
  }
}

bool Team::sleep_until(std::chrono::steady_clock::time_point until) const {
  const auto left = until - system().now();
  if (left <= std::chrono::steady_clock::duration::zero()) return false;
  constexpr std::chrono::minutes kLongest{1};  // before the next look
  pollfd bell{parts_.bells.fd(own_index()), POLLIN, 0};
  system().poll({&bell, 1}, std::min<std::chrono::nanoseconds>(left, kLongest));
  parts_.bells.drain(own_index());
  return true;
}

void Team::announce_unmapped() {
  own_line().unmapped.store(1, std::memory_order_seq_cst);
  parts_.bells.ring_all();
  if (control_) control_->announce_unmapped();
}

bool Team::await_unmapped(int peer, std::chrono::steady_clock::time_point until) const {
  while (!unmapped(peer) && !departed(peer) && !lost(peer)) {
    if (!sleep_until(until)) return false;
  }
  return true;
}

bool Team::unmapped(int peer) const {
  if (!shares_memory(peer)) return remotes_[static_cast<std::size_t>(peer)]->unmapped;
  return parts_.segment.line(placement(peer).segment_index).unmapped.load(std::memory_order_acquire) != 0;
}

bool Team::departed(int peer) const {
  if (!shares_memory(peer)) return remotes_[static_cast<std::size_t>(peer)]->departed;
  return parts_.segment.line(placement(peer).segment_index).departed.load(std::memory_order_acquire) != 0;
}
bool Team::lost(int peer) const {
  if (!shares_memory(peer)) return remotes_[static_cast<std::size_t>(peer)]->lost;
  return parts_.segment.line(placement(peer).segment_index).lost.load(std::memory_order_acquire) != 0;
}

void Team::check_presence(int peer) const {
  if (peer == rank() || !lost(peer)) return;
  throw Error(ErrorCode::peer_lost,
              fmt::format("{} is lost: {}", whole_name(peer), describe_end(peer, "its process or connection ended")),
              peer);
}

void Team::announce_waiting(const Signature& signature) {
  if (control_) control_->announce_waiting(signature);
}

}  // namespace rondo::comm
