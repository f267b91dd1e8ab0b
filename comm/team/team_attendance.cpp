// SPDX-License-Identifier: Apache-2.0
// How ranks know of each other's coming, or that one cannot, beside the collectives.
#include "comm/team/team_remote.hpp"

namespace rondo::comm {

void Team::attend(std::uint64_t entered, std::uint64_t verdict) {
  Attendance& own = own_line().attendance;
  if (verdict != 0) own.verdict(entered / 2).store(verdict, std::memory_order_seq_cst);
  own.entered.store(entered, std::memory_order_seq_cst);
  parts_.bells.ring_all();
  if (control_) control_->announce_attendance(entered, verdict);
}

void Team::on_attendance(int peer, std::uint64_t entered, std::uint64_t verdict) {
  Attendance& theirs = remotes_[static_cast<std::size_t>(peer)]->attendance;
  if (verdict != 0) theirs.verdict(entered / 2).store(verdict, std::memory_order_release);
  theirs.entered.store(entered, std::memory_order_release);
  parts_.bells.ring(own_index());
}

Attendance& Team::attendance(int peer) const {
  if (!shares_memory(peer)) return remotes_[static_cast<std::size_t>(peer)]->attendance;
  return parts_.segment.line(placement(peer).segment_index).attendance;
}

void Team::keep_apart(std::uint32_t split) {
  own_line().keeps_apart.store(split, std::memory_order_release);
  if (control_) control_->announce_apart(split);
}

void Team::on_apart(int peer, std::uint64_t split) {
  remotes_[static_cast<std::size_t>(peer)]->keeps_apart = static_cast<std::uint32_t>(split);
}

bool Team::keeps_apart(int peer, std::uint32_t split) const {
  const std::atomic<std::uint32_t>& latest = shares_memory(peer)
                                                 ? parts_.segment.line(placement(peer).segment_index).keeps_apart
                                                 : remotes_[static_cast<std::size_t>(peer)]->keeps_apart;
  return latest.load(std::memory_order_acquire) == split;
}

}  // namespace rondo::comm
