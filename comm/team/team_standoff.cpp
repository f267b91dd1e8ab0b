// SPDX-License-Identifier: Apache-2.0
// Two ranks wait for each other in different things, and nothing but one of them could end it: a collective on one,
// and on the other a message between the two, or a collective of another communicator. That is certain where neither's
// process has another thread that may call something, and nothing of the one is on its way to the other. What
// cannot be known ends at the deadline, whose error says what each waits in.
#include <fmt/format.h>

#include <mutex>
#include <set>

#include "comm/base/majority.hpp"
#include "comm/base/one_per_process.hpp"
#include "comm/team/team_remote.hpp"

namespace rondo::comm {

// Of all communicators of a process.
struct Team::OfProcess {
  std::mutex mutex;
  std::set<Team*> teams;  // guarded by it; none goes while somebody holds it
};

namespace {

// Whether that rank cannot leave the collective before the other has entered it, whatever way the call takes.
bool needs(const Signature& in, int rank, int other) {
  const CollectiveRow& row = row_of(in.collective);
  if (in.on_device != 0 || row.is_message() || row.has_common_counts() || row.has_own_counts()) return false;
  if (in.collective == Collective::barrier) return true;
  if (in.count == 0) return false;
  return !row.rooted || (row.recv_at_root ? in.root == rank : in.root == other);
}

std::string sentence_of(int rank, const std::string& call, int peer, const std::string& other_call) {
  return fmt::format("rank {} called {} where rank {} called {}, and each waits for the other", rank, call, peer,
                     other_call);
}

constexpr const char* kElsewhere = " of another communicator";

}  // namespace

std::shared_ptr<Team::OfProcess> Team::of_process() {
  static constinit OnePerProcess<OfProcess> all;
  return all.get();
}

void Team::enlist() {
  fellows_ = of_process();
  const std::lock_guard lock(fellows_->mutex);
  fellows_->teams.insert(this);
}

void Team::delist() {
  if (!fellows_) return;
  const std::lock_guard lock(fellows_->mutex);
  fellows_->teams.erase(this);
}

Signature Team::waits_for_this_alone(int peer) const {
  std::uint64_t sequence = 0;
  if (shares_memory(peer)) {
    sequence = parts_.segment.line(placement(peer).segment_index).alone_in.load(std::memory_order_acquire);
  } else {
    const Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
    const std::lock_guard lock(remote.mutex);
    sequence = remote.alone_in;
  }
  Signature in;
  const bool waits = sequence != 0 && arrived(rank()) < sequence && signature_of(peer, sequence, in);
  return waits && in.sequence == sequence && needs(in, peer, rank()) ? in : Signature{};
}

std::uint64_t Team::message_steps_from(int peer) const {
  if (shares_memory(peer)) {
    const Fifo& fifo = parts_.segment.of_messages().fifo(placement(peer).segment_index, own_index());
    return fifo.posted.load(std::memory_order_acquire);
  }
  const Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  const std::lock_guard lock(remote.mutex);
  return remote.steps_before;
}

std::atomic<std::uint64_t>* Team::message_steps_to(int peer) {
  const auto& remote = remotes_[static_cast<std::size_t>(peer)];
  return remote ? &remote->steps_sent : nullptr;
}

void Team::announce_waiting_alone(const Signature& signature) {
  if (!control_) return;
  control_->announce_waiting(signature, [this](int peer) {
    return 1 + remotes_[static_cast<std::size_t>(peer)]->steps_sent.load(std::memory_order_relaxed);
  });
}

// Of a rank of another node that waits alone: 1 more than the steps of messages that it had sent to this one.
void Team::note_alone(int peer, const Signature& theirs, std::uint64_t after) {
  Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  const std::lock_guard lock(remote.mutex);
  remote.alone_in = after == 0 ? 0 : theirs.sequence;
  if (after != 0) remote.steps_before = after - 1;
}

int Team::rank_of_process(const Team& other, int peer) const {
  const Placement& process = other.placement(peer);
  for (int r = 0; process.visible && r < size(); ++r) {
    if (r != rank() && placement(r).visible && placement(r).pid == process.pid) return r;
  }
  return -1;
}

// Most ranks may be in the collective, and who is not is the odd one.
Error Team::judge_standoff(const std::string& sentence, int peer, const Signature& in) {
  const auto standings = inquire(in, kJudging);
  const Majority majority = find_majority(standings, in.sequence);
  if (2 * majority.most.size() <= standings.size() || standings.size() <= 2)
    return either_of(ErrorCode::mismatch, sentence, rank(), peer);
  return {ErrorCode::mismatch,
          fmt::format("{}; {} of {} ranks called what rank {} called", sentence, majority.most.size(), size(), peer),
          rank()};
}

void Team::look_for_standoff(const std::string& message, int peer,
                             const std::function<bool(std::uint64_t steps)>& has_taken) {
  if (const Signature in = waits_for_this_alone(peer); in.sequence != 0) {
    if (!has_taken(message_steps_from(peer))) return;
    throw judge_standoff(sentence_of(rank(), message, peer, describe(in)), peer, in);
  }
  if (!fellows_ || !shares_memory(peer)) return;
  const std::lock_guard lock(fellows_->mutex);
  for (Team* team : fellows_->teams) {
    const int there = team == this ? -1 : team->rank_of_process(*this, peer);
    const Signature in = there < 0 ? Signature{} : team->waits_for_this_alone(there);
    if (in.sequence == 0 || !has_taken(message_steps_from(peer))) continue;
    team->fail(either_of(ErrorCode::mismatch, sentence_of(team->rank(), message + kElsewhere, there, describe(in)),
                         team->rank(), there));
    throw either_of(ErrorCode::mismatch, sentence_of(rank(), message, peer, describe(in) + kElsewhere), rank(), peer);
  }
}

void Team::look_for_standoff(const Signature& mine) {
  if (!fellows_) return;
  const std::lock_guard lock(fellows_->mutex);
  for (Team* team : fellows_->teams) {
    for (int there = 0; team != this && there < team->size(); ++there) {
      if (there == team->rank()) continue;
      const Signature theirs = team->waits_for_this_alone(there);
      const int peer = theirs.sequence == 0 ? -1 : rank_of_process(*team, there);
      if (peer < 0 || !needs(mine, rank(), peer) || arrived(peer) >= mine.sequence) continue;
      team->fail(either_of(ErrorCode::mismatch,
                           sentence_of(team->rank(), describe(mine) + kElsewhere, there, describe(theirs)),
                           team->rank(), there));
      throw either_of(ErrorCode::mismatch, sentence_of(rank(), describe(mine), peer, describe(theirs) + kElsewhere),
                      rank(), peer);
    }
  }
}

}  // namespace rondo::comm
