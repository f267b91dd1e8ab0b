// SPDX-License-Identifier: Apache-2.0
// What ranks know of each other's collectives and messages: the calling threads', and those enqueued for kernels. Calls
// that return before the others have come are compared here, and what was left over is told when a rank leaves.
#include <fmt/format.h>

#include <algorithm>

#include "comm/messages/envelope.hpp"
#include "comm/team/team_remote.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t index_of(Team::Side side) { return static_cast<std::size_t>(side); }

// Where counts are each rank's own, no two need have the same.
Signature comparable(Signature signature) {
  if (row_of(signature.collective).has_own_counts()) signature.count = 0;
  signature.on_device = 1;
  return signature;
}

}  // namespace

const CallHistory& Team::history(int peer, Side side) const {
  const RankLine& line = parts_.segment.line(placement(peer).segment_index);
  return side == Side::host ? line.calls : line.device_calls;
}

std::uint64_t Team::arrived(int peer, Side side) const {
  if (shares_memory(peer)) {
    const std::uint64_t latest = history(peer, side).arrived.load(std::memory_order_seq_cst);
    return latest == CallHistory::kClosed ? 0 : latest;
  }
  const Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  const std::lock_guard lock(side == Side::host ? remote.mutex : device_calls_);
  return (side == Side::host ? remote.latest : remote.on_device).sequence;
}

bool Team::signature_of(int peer, std::uint64_t sequence, Signature& out, Side side) const {
  if (shares_memory(peer)) return read_history(history(peer, side), sequence, out);
  const Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  const std::lock_guard lock(side == Side::host ? remote.mutex : device_calls_);
  out = side == Side::host ? remote.latest : remote.on_device;
  return out.sequence == sequence;
}

Signature Team::latest(Side side) const {
  Signature latest;
  const std::uint64_t sequence = history(rank(), side).arrived.load(std::memory_order_relaxed);
  const bool known = sequence != CallHistory::kClosed && read_history(history(rank(), side), sequence, latest);
  latest.on_device = side == Side::device ? 1 : 0;
  return known ? latest : Signature{};
}

// ---- what others tell; on the monitor's thread ----

void Team::on_waiting(int peer, const Signature& theirs) {
  if (theirs.on_device != 0) return on_device_call(peer, theirs);
  Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  {
    const std::lock_guard lock(remote.mutex);
    remote.latest = theirs;
  }
  Signature mine;
  if (!read_history(own_line().calls, theirs.sequence, mine)) return;
  const std::string sentence = compare(rank(), mine, peer, theirs);
  if (!sentence.empty()) accuse({sentence, peer, mine});
}

void Team::on_device_call(int peer, const Signature& theirs) {
  Remote& remote = *remotes_[static_cast<std::size_t>(peer)];
  {
    const std::lock_guard lock(device_calls_);
    if (is_message(theirs)) {
      remote.messages = {.sent = theirs.sequence, .received = theirs.count};
      return;
    }
    remote.on_device = theirs;
  }
  compare_device_calls(peer);
}

// Either of two ranks may be the second to come there.
void Team::compare_device_calls(int peer) {
  Difference difference{.peer = peer};
  {
    const std::lock_guard lock(device_calls_);
    const Signature& theirs = remotes_[static_cast<std::size_t>(peer)]->on_device;
    Signature mine = device_wait_;
    if (theirs.sequence == 0) return;
    if (mine.sequence != theirs.sequence && !read_history(own_line().device_calls, theirs.sequence, mine)) return;
    difference.sentence = compare(rank(), mine, peer, theirs);
    difference.about = mine;
    difference.about.on_device = 1;
  }
  if (!difference.empty()) accuse(difference);
}

void Team::announce_device_wait(const Signature& signature) {
  if (!control_ || signature.sequence == 0) return;  // messages are numbered by nobody
  {
    const std::lock_guard lock(device_calls_);
    device_wait_ = comparable(signature);
  }
  control_->announce_waiting(comparable(signature));
  for (int peer = 0; peer < size(); ++peer) {
    if (!shares_memory(peer)) compare_device_calls(peer);
  }
}

// ---- what is enqueued for kernels ----

// Whoever of two ranks writes later sees what the other has written.
void Team::note_device_call(const Signature& signature) {
  CallHistory& calls = own_line().device_calls;
  if (calls.arrived.load(std::memory_order_relaxed) == CallHistory::kClosed) return;
  write_history(calls, comparable(signature));
  calls.arrived.store(signature.sequence, std::memory_order_seq_cst);
}

void Team::note_device_message(int peer, bool sends) {
  if (!shares_memory(peer)) {
    const std::lock_guard lock(device_calls_);
    Messages& messages = device_messages_[static_cast<std::size_t>(peer)];
    ++(sends ? messages.sent : messages.received);
    return;
  }
  const int self = own_index(), other = placement(peer).segment_index;
  auto& count = sends ? parts_.segment.fifo(self, other).device_sent : parts_.segment.fifo(other, self).device_received;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Team::close_device_history() {
  own_line().device_calls.arrived.store(CallHistory::kClosed, std::memory_order_seq_cst);
}

// Whoever of two ranks writes later sees what the other has written.
Difference Team::note_device_way(const Signature& signature, bool captured) {
  const std::size_t place = signature.sequence % kHistory;
  const std::uint64_t mine = 2 * signature.sequence + (captured ? 1 : 0);
  own_line().device_ways[place].store(mine, std::memory_order_seq_cst);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !shares_memory(peer)) continue;
    const RankLine& line = parts_.segment.line(placement(peer).segment_index);
    if (line.device_ways[place].load(std::memory_order_seq_cst) != (mine ^ 1)) continue;
    return {.sentence = fmt::format("rank {} captured {} in a graph and rank {} did not: outside of graphs so short a "
                                    "call goes by way of host memory; capture it on all ranks or on none",
                                    captured ? rank() : peer, describe(signature), captured ? peer : rank()),
            .peer = peer};
  }
  return {};
}

Difference Team::find_device_disagreement() { return find_disagreement(Side::device); }

// ---- comparing ----

Difference Team::find_disagreement() {
  Difference found = find_disagreement(Side::host);
  return found.empty() ? find_disagreement(Side::device) : found;
}

Difference Team::find_disagreement(Side side) {
  const Signature own = latest(side);
  if (own.sequence == 0) return {};
  std::uint64_t& told = told_[index_of(side)];
  if (control_ && own.sequence != told && row_of(own.collective).rooted) {
    told = own.sequence;
    announce_waiting(own);
  }
  const auto read_own = [&](std::uint64_t sequence, Signature& out) {
    return read_history(history(rank(), side), sequence, out);
  };
  Signature mine, theirs;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const std::uint64_t last = std::min(own.sequence, arrived(peer, side));
    std::uint64_t& agreed = agreed_[index_of(side)][static_cast<std::size_t>(peer)];
    for (std::uint64_t sequence = std::max(agreed, last - std::min(last, kHistory)) + 1; sequence <= last; ++sequence) {
      if (!read_own(sequence, mine) || !signature_of(peer, sequence, theirs, side)) continue;
      mine.on_device = own.on_device;
      const std::string sentence = compare(rank(), mine, peer, theirs);
      if (!sentence.empty()) return {sentence, peer, mine};
    }
    agreed = std::max(agreed, last);
  }
  return {};
}

// ---- what is left over ----

// By this rank, towards others and back.
Team::Messages Team::device_messages(int peer) const {
  if (!shares_memory(peer)) {
    const std::lock_guard lock(device_calls_);
    return device_messages_[static_cast<std::size_t>(peer)];
  }
  const int self = own_index(), other = placement(peer).segment_index;
  return {.sent = parts_.segment.fifo(self, other).device_sent.load(std::memory_order_acquire),
          .received = parts_.segment.fifo(other, self).device_received.load(std::memory_order_acquire)};
}

bool Team::may_leave_something(int peer) const {
  for (const Side side : {Side::host, Side::device}) {
    const Signature own = latest(side);
    if (own.sequence != 0 && row_of(own.collective).rooted) return true;
  }
  const Messages messages = device_messages(peer);
  return messages.sent + messages.received != 0;
}

// What a rank of another node was in last comes with its goodbye, which is on its way when both go at once.
std::string Team::find_leftovers() {
  constexpr auto kPatience = std::chrono::milliseconds(50);
  const auto until = system().now() + kPatience;
  for (int peer = 0; peer < size(); ++peer) {
    if (shares_memory(peer) || !may_leave_something(peer)) continue;
    while (!departed(peer) && !lost(peer) && sleep_until(until)) {
    }
  }
  std::string found = find_disagreement().sentence;
  if (found.empty()) found = unread_[static_cast<std::size_t>(rank())];
  for (int peer = 0; found.empty() && peer < size(); ++peer) {
    if (peer == rank()) continue;
    for (const Side side : {Side::host, Side::device}) {
      if (found.empty()) found = find_alone(peer, side);
    }
    if (found.empty()) found = find_unread_on_device(peer);
    if (found.empty()) found = find_unread_message(peer);
    if (found.empty()) found = find_unread(peer);
  }
  return found;
}

std::string Team::find_alone(int peer, Side side) const {
  const Signature own = latest(side);
  const std::uint64_t last = arrived(peer, side);
  if (!departed(peer) || last == own.sequence) return {};
  const auto is_closed = [&](int r) {
    return shares_memory(r) && history(r, side).arrived.load(std::memory_order_acquire) == CallHistory::kClosed;
  };
  if (is_closed(rank()) || is_closed(peer)) return {};
  if (last < own.sequence) {
    if (side == Side::device && !shares_memory(peer) && last == 0) return {};  // or it replayed graphs
    return fmt::format("rank {} left before it entered {}, which rank {} was in", peer, describe(own), rank());
  }
  Signature theirs;
  const bool known = signature_of(peer, last, theirs, side);
  return fmt::format("rank {} was in {}, which rank {} never entered", peer,
                     known ? describe(theirs) : fmt::format("collective #{}", last), rank());
}

std::string Team::find_unread_on_device(int peer) {
  const Messages mine = device_messages(peer);
  std::optional<Messages> theirs;
  if (shares_memory(peer)) {
    if (history(peer, Side::device).arrived.load(std::memory_order_acquire) == CallHistory::kClosed) return {};
    const int self = own_index(), other = placement(peer).segment_index;
    theirs = {.sent = parts_.segment.fifo(other, self).device_sent.load(std::memory_order_acquire),
              .received = parts_.segment.fifo(self, other).device_received.load(std::memory_order_acquire)};
  } else {
    const std::lock_guard lock(device_calls_);
    theirs = remotes_[static_cast<std::size_t>(peer)]->messages;
  }
  if (!theirs || history(rank(), Side::device).arrived.load(std::memory_order_relaxed) == CallHistory::kClosed)
    return {};
  if (theirs->sent > mine.received) {
    return fmt::format("rank {} had sent it {} message{} on its device, of which it received {}", peer, theirs->sent,
                       theirs->sent == 1 ? "" : "s", mine.received);
  }
  if (departed(peer) && theirs->received < mine.sent) {
    return fmt::format("rank {} left without receiving all that rank {} had sent to it on its device", peer, rank());
  }
  return {};
}

void Team::note_unread(int peer, const Signature& message) {
  std::string& noted = unread_[static_cast<std::size_t>(peer)];
  if (!noted.empty()) return;
  const std::string sent = peer == rank() ? "it had sent itself" : fmt::format("rank {} had sent it", peer);
  noted = fmt::format("{} {} that it never received", sent, describe(message));
}

// What has come over the link of messages, and nobody has looked at; or what lies there of this rank's.
std::string Team::find_unread_message(int peer) {
  if (!unread_[static_cast<std::size_t>(peer)].empty()) return unread_[static_cast<std::size_t>(peer)];
  RecvLink* const link = message_links(peer).recv.get();
  if (link == nullptr) return {};
  if (shares_memory(peer) && departed(peer) && link->wake().by == Wake::By::doorbell) {
    const Segment segment = parts_.segment.of_messages();
    const int self = own_index(), other = placement(peer).segment_index;
    const Fifo& sent = segment.fifo(self, other);
    const auto end = sent.posted.load(std::memory_order_acquire);
    for (auto step = sent.freed.load(std::memory_order_acquire); step != end; ++step) {
      const auto* header = reinterpret_cast<const StepHeader*>(segment.slot(self, other, step));
      if (unpacked(header->signature, rank()).is_message())
        return fmt::format("rank {} left without receiving all that rank {} had sent to it", peer, rank());
    }
  }
  try {
    while (const StepHeader* step = link->try_step(nullptr, 0)) {
      const Envelope envelope = unpacked(step->signature, peer);
      if (envelope.is_message())
        return fmt::format("rank {} had sent it {} that it never received", peer, describe(envelope.signature()));
      if (step->bytes != 0) return {};  // the rest of one that it gave up
      link->release();
    }
  } catch (const Error&) {  // the connection's end is all that is left there
  }
  return {};
}

// Steps of collectives.
std::string Team::find_unread(int peer) {
  if (shares_memory(peer) && departed(peer)) {
    const Fifo& sent = parts_.segment.fifo(own_index(), placement(peer).segment_index);
    const auto left = sent.posted.load(std::memory_order_acquire) - sent.freed.load(std::memory_order_acquire);
    if (left != 0) return fmt::format("rank {} left without receiving all that rank {} had sent to it", peer, rank());
  }
  RecvLink* const link = links_[static_cast<std::size_t>(peer)].recv.get();
  if (link == nullptr) return {};  // nobody has connected them
  const StepHeader* step = nullptr;
  try {
    step = link->try_step(nullptr, 0);
  } catch (const Error&) {  // the connection's end is all that is left there
  }
  if (step == nullptr) return {};
  const Signature& unread = step->signature;
  if (unread.sequence == 0) return {};                           // of kernels, which count by themselves
  if (unread.sequence > latest(Side::host).sequence) return {};  // who waits there says it
  return fmt::format("rank {} had sent it {} #{} of {} {} that it never received", peer, name_of(unread.collective),
                     unread.sequence, unread.count, name_of(unread.dtype));
}

}  // namespace rondo::comm
