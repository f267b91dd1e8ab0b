// SPDX-License-Identifier: Apache-2.0
#include "comm/call/host_primitives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace rondo::comm {

using kernels::Buffer;
using kernels::Fold;
using kernels::kNobody;
using kernels::Location;
using kernels::Move;

HostPrimitives::HostPrimitives(Team& team, const Config& config)
    : team_(team),
      waiter_(team, config),
      slice_bytes_(team.segment().shape().slice_bytes),
      kept_bytes_(config.tuning.kept_bytes),
      sending_(static_cast<std::size_t>(team.size())),
      receiving_(static_cast<std::size_t>(team.size())),
      contributions_(static_cast<std::size_t>(team.size())) {}

void HostPrimitives::begin(const Phase& phase, std::chrono::milliseconds timeout) {
  postponed_.bytes = postponed_.done = 0;  // of a call that failed
  turn_to(phase);
  waiter_.begin(phase_.signature, true, timeout);
}

void HostPrimitives::turn_to(const Phase& phase) {
  phase_ = phase;
  element_ = size_of(phase_.dtype);
  element_bits_ = std::countr_zero(element_);
  fold_ = phase_.reduces ? kernels::find_fold(phase_.dtype, phase_.op) : nullptr;
}

void HostPrimitives::reserve_scratch(std::size_t count) {
  if (scratch_.size() < count * element_) scratch_.resize(count * element_);
}

std::size_t HostPrimitives::chunk_capacity() const {
  return (static_cast<std::size_t>(team_.segment().shape().slices_per_chunk()) * slice_bytes_) >> element_bits_;
}

std::byte* HostPrimitives::resolve(Location place) const {
  const std::size_t offset = place.offset * element_;
  switch (place.buffer) {
    case Buffer::none:
      return nullptr;
    case Buffer::input:
      return const_cast<std::byte*>(phase_.input) + offset;  // read only: never a store
    case Buffer::output:
      return phase_.output + offset;
    case Buffer::scratch:
      return const_cast<std::byte*>(scratch_.data()) + offset;
  }
  return nullptr;
}

void HostPrimitives::activate(const Move& move) {
  Active& active = active_.emplace_back();
  active.signature = phase_.signature;
  if (!phase_.send_counts.empty() && move.to != kNobody) {
    active.signature.count = phase_.send_counts[static_cast<std::size_t>(move.to)];
  } else if (!phase_.recv_counts.empty() && move.from != kNobody) {
    active.signature.count = phase_.recv_counts[static_cast<std::size_t>(move.from)];
  }
  active.bytes = move.count * element_;
  active.from = rank_at(move.from);
  active.to = rank_at(move.to);
  active.local = resolve(move.local);
  active.store = resolve(move.store);
  active.complete = move.complete && phase_.op == ReduceOp::average;
  active.scale_local = phase_.reduces && phase_.op == ReduceOp::premultiplied_sum && move.local.buffer == Buffer::input;
}

void HostPrimitives::run(std::span<const Move> moves) {
  active_.clear();
  for (const Move& move : moves) {
    if (move.count != 0 && !does_nothing(move)) activate(move);
  }
  for (const Active& a : active_) {
    if (touches_postponed(a.local, a.store, a.bytes)) finish_copy();
  }
  if (!active_.empty() && !postpone()) run_active();
}

// A copy of what lies in place.
bool HostPrimitives::does_nothing(const Move& move) const {
  return move.from == kNobody && move.to == kNobody && !move.complete && !phase_.reduces &&
         resolve(move.local) == resolve(move.store);
}

// A rank that copies first keeps its peers waiting for what it sends, and leaves what they send in the sockets until
// these are full.
bool HostPrimitives::postpone() {
  if (!phase_.may_hold || active_.size() != 1) return false;
  const Active& copy = active_.front();
  if (copy.from != kNobody || copy.to != kNobody || copy.bytes <= slice_bytes_) return false;
  finish_copy();
  postponed_ = copy;
  const bool beyond_caches = copy.bytes >= kept_bytes_ / static_cast<std::size_t>(positions());
  if (beyond_caches) postponed_.stores = kernels::Stores::streaming;
  return true;
}

bool HostPrimitives::touches_postponed(const std::byte* local, const std::byte* store, std::size_t bytes) const {
  const std::size_t left = postponed_.bytes - postponed_.done;
  if (left == 0) return false;
  const auto meets = [&](const std::byte* at, const std::byte* copy) {
    return at != nullptr && at < copy + postponed_.bytes && copy < at + bytes;
  };
  return meets(local, postponed_.store) || meets(store, postponed_.store) || meets(store, postponed_.local);
}

// One slice of it. False: nothing is left, or it has to wait itself.
bool HostPrimitives::copy_on() {
  const std::size_t bytes = std::min(slice_bytes_, postponed_.bytes - postponed_.done);
  if (bytes == 0 || !may_overwrite(postponed_.store + postponed_.done, bytes)) return false;
  handle(postponed_, bytes, nullptr);
  postponed_.done += bytes;
  return true;
}

void HostPrimitives::finish_copy() {
  for (blocked_.clear(); postponed_.done != postponed_.bytes; blocked_.clear()) wait();
}

void HostPrimitives::send_empty(std::span<const int> peers) {
  if (peers.empty()) return;
  active_.clear();
  for (const int peer : peers) activate({.to = peer});
  run_active();
}

void HostPrimitives::receive_empty(std::span<const int> peers) {
  if (peers.empty()) return;
  active_.clear();
  for (const int peer : peers) activate({.from = peer});
  run_active();
}

// What is sent goes to the kernel together: a write of megabytes costs it less than many of 128 KiB. Moves that only
// send are held back until something is received or waited for: a peer may need them before it sends.
void HostPrimitives::run_active() {
  holds_ =
      phase_.may_hold && std::all_of(active_.begin(), active_.end(), [](const Active& a) { return a.from == kNobody; });
  if (!holds_) flush_held();
  while (!active_.empty()) {
    blocked_.clear();
    if (active_.size() == 1 ? advance(active_.front()) : advance_all()) {
      waiter_.progressed();
      if (active_.size() == 1 && active_.front().finished) return active_.clear();
    } else {
      wait();
    }
  }
}

// Moves over one link keep their order: a later one may not start before an earlier one has the link no more.
bool HostPrimitives::advance_all() {
  std::fill(sending_.begin(), sending_.end(), 0);
  std::fill(receiving_.begin(), receiving_.end(), 0);
  bool moved = false;
  for (Active& active : active_) {
    if (claim(active)) moved = advance(active) || moved;
  }
  std::erase_if(active_, [](const Active& active) { return active.finished; });
  return moved;
}

bool HostPrimitives::claim(Active& active) {
  char* sending = active.to == kNobody ? nullptr : &sending_[static_cast<std::size_t>(active.to)];
  char* receiving = active.from == kNobody ? nullptr : &receiving_[static_cast<std::size_t>(active.from)];
  const bool free = (sending == nullptr || *sending == 0) && (receiving == nullptr || *receiving == 0);
  if (sending != nullptr) *sending = 1;
  if (receiving != nullptr) *receiving = 1;
  return free;
}

bool HostPrimitives::advance(Active& active) {
  const bool moved = transfer(active);
  if (active.to != kNobody && (holds_ || !team_.send_link(active.to).flushed())) note_unflushed(active.to);
  return moved;
}

// Bytes, the same at both ends. Short steps let ranks fold and forward what has come while the rest is on its way, and
// have to fit a slot; where two ranks only move, each step more costs both of them.
std::size_t HostPrimitives::most_of_step(int peer) const {
  const bool only_moves = peer != kNobody && !phase_.reduces && positions() == 2;
  return only_moves ? team_.longest_step(peer) : slice_bytes_;
}

bool HostPrimitives::transfer(Active& active) {
  const std::size_t most = most_of_step(active.to != kNobody ? active.to : active.from);
  bool moved = false;
  while (!active.finished) {
    const std::size_t bytes = std::min(most, active.bytes - active.done);
    if (active.to != kNobody && !team_.send_link(active.to).ready()) {
      blocked_.push_back({active.to, team_.send_link(active.to).wake()});
      return moved;
    }
    if (active.store != nullptr && !may_overwrite(active.store + active.done, bytes)) return moved;
    const std::byte* received = nullptr;
    if (active.from != kNobody) {
      RecvLink& link = team_.recv_link(active.from);
      // Not where lies what it is reduced with.
      const bool has_place = active.store != nullptr && active.store != active.local;
      std::byte* direct = has_place ? active.store + active.done : nullptr;
      const StepHeader* header = link.try_step(direct, bytes);
      if (header == nullptr) {
        blocked_.push_back({active.from, link.wake()});
        return moved;
      }
      check_header(*header, active.signature, active.from, bytes);
      received = link.data();
    }
    handle(active, bytes, received);
    if (active.from != kNobody) team_.recv_link(active.from).release();
    active.done += bytes;
    active.finished = active.done == active.bytes;
    moved = true;
  }
  // The link is free for the next move of this pass.
  if (active.to != kNobody) sending_[static_cast<std::size_t>(active.to)] = 0;
  if (active.from != kNobody) receiving_[static_cast<std::size_t>(active.from)] = 0;
  return moved;
}

// An algorithm may write where it has sent from; a socket may still be sending from there.
bool HostPrimitives::may_overwrite(const std::byte* store, std::size_t bytes) {
  for (const int peer : unflushed_) {
    SendLink& link = team_.send_link(peer);
    if (!link.refers_to(store, bytes) || link.flushed()) continue;
    blocked_.push_back({peer, link.wake()});
    return false;
  }
  return true;
}

void HostPrimitives::handle(Active& active, std::size_t bytes, const std::byte* received) {
  const std::byte* local = active.local == nullptr ? nullptr : active.local + active.done;
  if (active.scale_local) local = first_touch(local, bytes);
  std::byte* store = active.store == nullptr ? nullptr : active.store + active.done;
  const std::size_t count = bytes >> element_bits_;
  const bool combines = received != nullptr && local != nullptr;
  const std::byte* value = received != nullptr ? received : local;
  bool stable = received == nullptr && !active.scale_local;  // `value` outlives this call
  if (store != nullptr || combines || active.complete) {
    std::byte* into = store != nullptr ? store : team_.send_link(active.to).slot();
    if (combines) {
      kernels::fold_pair(fold_, into, received, local, count);
    } else if (into != value) {
      kernels::copy(into, value, bytes, active.stores);
    }
    if (active.complete) kernels::find_divide(phase_.dtype)(into, into, count, static_cast<double>(team_.size()));
    value = into;
    stable = store != nullptr;
  }
  if (active.to != kNobody) forward(active, value, bytes, stable);
}

void HostPrimitives::forward(Active& active, const std::byte* data, std::size_t bytes, bool stable) {
  SendLink& link = team_.send_link(active.to);
  if (stable && bytes != 0) {
    link.send(active.signature, data, bytes);
  } else {
    std::byte* slot = link.slot();
    if (slot != data && bytes != 0) kernels::copy(slot, data, bytes, kernels::Stores::plain);
    link.publish(active.signature, bytes);
  }
}

void HostPrimitives::note_unflushed(int peer) {
  if (std::find(unflushed_.begin(), unflushed_.end(), peer) == unflushed_.end()) unflushed_.push_back(peer);
}

void HostPrimitives::flush_held() {
  std::erase_if(unflushed_, [&](int peer) { return team_.send_link(peer).flushed(); });
}

const std::byte* HostPrimitives::first_touch(const std::byte* local, std::size_t bytes) {
  if (local == nullptr) return nullptr;
  scaled_.resize(slice_bytes_);
  kernels::find_multiply(phase_.dtype)(scaled_.data(), local, bytes / element_, phase_.op.factor());
  return scaled_.data();
}

void HostPrimitives::fold(const Fold& fold) {
  flush_held();
  const std::size_t total = fold.count * element_;
  if (touches_postponed(resolve(fold.local), resolve(fold.store), total)) finish_copy();
  const bool scale = phase_.op == ReduceOp::premultiplied_sum && fold.local.buffer == Buffer::input;
  for (std::size_t done = 0; done < total;) {
    const std::size_t bytes = std::min(slice_bytes_, total - done);
    const std::byte* local = resolve(fold.local) + done;
    if (scale) local = first_touch(local, bytes);
    for (int p = 0; p < positions(); ++p) {
      contributions_[static_cast<std::size_t>(p)] = rank_at(p) == team_.rank() ? local : nullptr;
    }
    while (!gather_contributions(bytes) || !may_overwrite(resolve(fold.store) + done, bytes)) wait();
    waiter_.progressed();
    kernels::fold_into(fold_, resolve(fold.store) + done, contributions_.data(), positions(), bytes / element_,
                       team_.size());
    for (int p = 0; p < positions(); ++p) {
      if (rank_at(p) != team_.rank()) team_.recv_link(rank_at(p)).release();
    }
    done += bytes;
  }
}

bool HostPrimitives::gather_contributions(std::size_t bytes) {
  blocked_.clear();
  for (int p = 0; p < positions(); ++p) {
    const void*& contribution = contributions_[static_cast<std::size_t>(p)];
    if (contribution != nullptr) continue;
    const int peer = rank_at(p);
    RecvLink& link = team_.recv_link(peer);
    const StepHeader* header = link.try_step(nullptr, bytes);
    if (header == nullptr) {
      blocked_.push_back({peer, link.wake()});
      continue;
    }
    check_header(*header, phase_.signature, peer, bytes);
    contribution = link.data();
  }
  return blocked_.empty();
}

void HostPrimitives::check_header(const StepHeader& header, const Signature& mine, int peer, std::size_t bytes) {
  if (header.signature == mine && header.bytes == bytes) [[likely]]
    return;
  const Difference difference = team_.find_difference(mine, peer, header.signature);
  if (!difference.empty()) throw team_.judge(difference);
  throw Error(ErrorCode::corrupt_message,
              fmt::format("rank {} sent {} bytes in {} where rank {} expected {}", peer, header.bytes, describe(mine),
                          team_.rank(), bytes),
              peer);
}

void HostPrimitives::wait() {
  if (copy_on()) return;
  for (const int peer : unflushed_) {
    if (!team_.send_link(peer).flushed()) blocked_.push_back({peer, team_.send_link(peer).wake()});
  }
  waiter_.idle(blocked_);
}

void HostPrimitives::settle(const std::byte* begin, std::size_t bytes) {
  for (blocked_.clear(); !may_overwrite(begin, bytes); blocked_.clear()) wait();
  waiter_.progressed();
}

void HostPrimitives::finish() {
  for (;;) {
    flush_held();
    if (unflushed_.empty()) break;
    blocked_.clear();
    wait();
  }
  finish_copy();
  waiter_.progressed();
}

}  // namespace rondo::comm
