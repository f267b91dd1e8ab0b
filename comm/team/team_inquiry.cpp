// SPDX-License-Identifier: Apache-2.0
// A call does not end: ranks ask each other which collectives they have entered. The segment says it of those who share
// it; the monitor's threads answer for the others, whatever their ranks are doing.
#include <fmt/format.h>

#include <algorithm>

#include "comm/base/process_state.hpp"
#include "comm/team/team_remote.hpp"

namespace rondo::comm {
namespace {

constexpr std::uint64_t kWaits = 1, kStopped = 2;
constexpr int kFlags = 2;                           // bits; above them is a PackedMessage
constexpr std::chrono::milliseconds kLookEvery{5};  // for a failure, which ends the inquiry

class OnlyInquiry {  // while it lives, which is under the lock
 public:
  explicit OnlyInquiry(bool& inquiring) : inquiring_(inquiring) { inquiring_ = true; }
  ~OnlyInquiry() { inquiring_ = false; }
  OnlyInquiry(const OnlyInquiry&) = delete;
  OnlyInquiry& operator=(const OnlyInquiry&) = delete;

 private:
  bool& inquiring_;
};

Team::Side side_of(const Signature& about) { return about.on_device != 0 ? Team::Side::device : Team::Side::host; }

}  // namespace

// Of a rank that shares the segment. One whose graphs replay calls, which nobody counts, may have entered any.
Standing Team::standing(int peer, const Signature& about) const {
  const Side side = side_of(about);
  const CallHistory& calls = history(peer, side);
  const std::uint64_t last = calls.arrived.load(std::memory_order_seq_cst);
  Standing found{.known = true};
  if (last == CallHistory::kClosed) {
    found.at = about;
    return found;
  }
  const std::uint64_t sequence = about.sequence <= last ? about.sequence : last;
  if (sequence != 0 && !read_history(calls, sequence, found.at) && !read_history(calls, last, found.at)) {
    found.at.sequence = last;
  }
  found.at.on_device = about.on_device;
  const RankLine& line = parts_.segment.line(placement(peer).segment_index);
  found.waits = last != 0 && side == Side::host && line.waits_in.load(std::memory_order_acquire) == last;
  found.message = PackedMessage(line.message.load(std::memory_order_acquire));
  found.stopped = is_seen_stopped(peer);
  return found;
}

bool Team::is_seen_stopped(int peer) const {
  return peer != rank() && placement(peer).visible && is_stopped(placement(peer).pid);
}

bool Team::is_halted(int peer) const {
  return peer != rank() && placement(peer).visible && rondo::is_halted(placement(peer).pid);
}

// What is not known in the end is what has not been answered.
std::vector<Standing> Team::inquire(const Signature& about, std::chrono::milliseconds patience) {
  const auto until = system().now() + patience;
  std::unique_lock lock(answers_);
  while (inquiring_) system().wait(answered_, lock, kLookEvery);
  const OnlyInquiry only(inquiring_);
  ++question_;
  if (control_) control_->ask(question_, about);
  const auto is_answered = [&](int peer) {
    return shares_memory(peer) || departed(peer) || has_answered(peer) || is_seen_stopped(peer);
  };
  const auto all_answered = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (!is_answered(peer)) return false;
    }
    return true;
  };
  while (!all_answered() && !failure_.raised() && system().now() < until) system().wait(answered_, lock, kLookEvery);
  std::vector<Standing> all;
  for (int peer = 0; peer < size(); ++peer) {
    all.push_back(shares_memory(peer) ? standing(peer, about) : remote_standing(peer, about));
  }
  return all;
}

// Under answers_, as what follows.
bool Team::has_answered(int peer) const { return remotes_[static_cast<std::size_t>(peer)]->answered == question_; }

Standing Team::remote_standing(int peer, const Signature& about) const {
  const Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  if (has_answered(peer)) return remote.standing;
  Standing found{.stopped = is_seen_stopped(peer)};
  const std::uint64_t last = arrived(peer, side_of(about));
  found.known = departed(peer) && side_of(about) == Side::host;  // its goodbye said it
  if (last != 0) signature_of(peer, last, found.at, side_of(about));
  return found;
}

std::string Team::describe_latest(int peer) const {
  constexpr Signature kAny{.sequence = CallHistory::kClosed};
  Standing known;
  if (shares_memory(peer)) {
    known = standing(peer, kAny);
  } else {
    const std::uint64_t last = arrived(peer);
    if (last == 0 || !signature_of(peer, last, known.at)) return {};
    known.known = true;
    known.stopped = is_seen_stopped(peer);
  }
  return describe_late(peer, placement(peer), known);
}

// ---- on the monitor's thread ----

// A rank whose process is stopped cannot; its neighbours speak for it.
void Team::on_question(int peer, std::uint64_t question, const Signature& about) {
  const auto say = [&](int whom, const Standing& s) {
    const std::uint64_t flags = (s.waits ? kWaits : 0) | (s.stopped ? kStopped : 0) | s.message.word << kFlags;
    control_->answer(peer, question, whom, s.at, flags);
  };
  say(rank(), standing(rank(), about));
  for (const int neighbour : stopped_neighbours()) say(neighbour, standing(neighbour, about));
}

// As of a moment ago: many may ask at once.
const std::vector<int>& Team::stopped_neighbours() {
  constexpr std::chrono::milliseconds kBelief{50};
  const auto now = system().now();
  if (now - looked_for_stopped_ < kBelief) return stopped_;
  looked_for_stopped_ = now;
  stopped_.clear();
  for (int r = 0; r < size(); ++r) {
    if (shares_memory(r) && is_seen_stopped(r)) stopped_.push_back(r);
  }
  return stopped_;
}

void Team::on_answer(int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags) {
  const bool exists = whom >= 0 && whom < size() && !shares_memory(whom);
  if (!exists || placement(whom).node != placement(peer).node) {
    return fail(ErrorCode::corrupt_message, peer,
                fmt::format("rank {} answered for rank {}, which is no neighbour of its", peer, whom));
  }
  const std::lock_guard lock(answers_);
  Remote& remote = *remotes_[static_cast<std::size_t>(whom)];
  const bool speaks_itself = whom == peer;
  if (question != question_ || (!speaks_itself && remote.answered == question)) return;
  remote.standing = {.known = true,
                     .waits = (flags & kWaits) != 0,
                     .stopped = (flags & kStopped) != 0,
                     .message = PackedMessage(flags >> kFlags),
                     .at = at};
  remote.answered = question;
  answered_.notify_all();
}

}  // namespace rondo::comm
