// SPDX-License-Identifier: Apache-2.0
#include "comm/messages/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/log.hpp"
#include "comm/base/majority.hpp"
#include "comm/messages/allowance.hpp"
#include "comm/transport/process_memory.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;  // of an announced message at once; others get their turn in between
constexpr std::size_t kLeastRead = 4 << 20;  // while both ranks have a core, both copy a shorter one in less time

}  // namespace

Exchange::Exchange(Team& team)
    : team_(team),
      whole_bytes_(team.segment().of_messages().shape().slice_bytes),
      least_read_(!team.copies_memory() ? SIZE_MAX
                  : team.crowded()      ? whole_bytes_
                                        : kLeastRead),
      channels_(static_cast<std::size_t>(team.size())) {
  for (int peer = 0; peer < team.size(); ++peer) {
    Links& links = team.message_links(peer);
    if (!links.send) continue;
    Channel& with = channel(peer);
    with.links = &links;
    with.published = team.message_steps_to(peer);
    with.in_segment = links.send->wake().by == Wake::By::doorbell && links.recv->wake().by == Wake::By::doorbell;
    with.whole_bytes =
        with.in_segment ? whole_bytes_ : std::min(std::max(whole_bytes_, kWholeOnSocket), links.longest_step);
  }
}

// ---- posting ----

void Exchange::post(Operation& operation) {
  ++operations_;
  if (operation.peer == kAnySource) {
    ++any_;
  } else {
    ++channel(operation.peer).operations;
  }
  if (operation.sends) return post_send(operation);
  if (!take_unasked(operation)) waiting_.push_back(&operation);
}

void Exchange::post_send(Operation& send) {
  Channel& to = channel(send.peer);
  send.sequence = next_number(to, send.tag);
  send.id = next_id_++;
  if (send.peer == team_.rank()) return post_to_itself(send);
  to.sends.push_back(&send);
}

// Nobody but this rank will take it, which may be waiting in this very call: so its bytes are kept, however many.
void Exchange::post_to_itself(Operation& send) {
  const Envelope envelope{.sequence = send.sequence,
                          .count = send.count,
                          .dtype = send.dtype,
                          .kind = Envelope::Kind::whole,
                          .tag = send.tag,
                          .id = send.id};
  if (Operation* receive = match(send.peer, envelope)) {
    agree(*receive, envelope, send.peer);
    hand_on(*receive, send.from, send.peer);
  } else {
    unasked_.push_back({.envelope = envelope, .source = send.peer, .bytes = {send.from, send.from + send.bytes}});
  }
  finish(send);
}

// ---- a message alone ----

bool Exchange::send_at_once(const Call& call) {
  Channel& to = channel(call.root);
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  if (!to.in_segment || to.ended || !may_send_whole(to, bytes) || !to.links->send->ready()) return false;
  send_whole(to,
             {.sequence = next_number(to, call.tag),
              .count = call.count,
              .dtype = call.dtype,
              .kind = Envelope::Kind::whole,
              .tag = call.tag,
              .id = next_id_++},
             static_cast<const std::byte*>(call.send));
  return true;
}

// What is not as it should be is looked at again by who can say it.
Exchange::Look Exchange::receive_at_once(const Call& call) {
  if (call.root == kAnySource || !unasked_.empty()) return Look::goes_by_post;
  Channel& from = channel(call.root);
  if (!from.in_segment || from.ended || from.incoming) return Look::goes_by_post;
  RecvLink& link = *from.links->recv;
  const StepHeader* const header = link.try_step(nullptr, 0);
  if (header == nullptr) return Look::not_here;
  const auto envelope = std::bit_cast<Envelope>(header->signature);
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  if (envelope.collective != Collective::send || envelope.kind != Envelope::Kind::whole || envelope.tag != call.tag ||
      envelope.count != call.count || envelope.dtype != call.dtype || header->bytes != bytes) {
    return Look::goes_by_post;
  }
  if (bytes != 0) kernels::copy(call.recv, link.data(), bytes, kernels::Stores::plain);
  link.release();
  ++from.taken;
  if (call.source != nullptr) *call.source = call.root;
  from.consumed += cost_of(bytes);
  if (from.consumed >= kToldAlone) pump(from);
  return Look::received;
}

// ---- what may go on ----

bool Exchange::advance() {
  bool moved = false;
  for (int peer = 0; peer < team_.size(); ++peer) {
    Channel& with = channel(peer);
    if (with.links != nullptr && !with.ended && is_busy(with)) moved = serve(peer, with) || moved;
  }
  return read_on() || moved || !finished_.empty();
}

// A link that has ended fails those that need its peer, and nobody else.
bool Exchange::serve(int peer, Channel& with) {
  try {
    bool moved = pump(with), took = false;
    for (int step = 0; step < kStepsPerTurn && wants_steps(with) && take_step(peer, with); ++step) took = true;
    if (took && (!with.replies.empty() || with.consumed >= kToldAlone)) pump(with);  // the peer waits for them
    return moved || took;
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::peer_lost || with.operations != 0) throw;
    with.ended = true;
    pending_ -= with.replies.size() + (with.unflushed ? 1 : 0);
    with.replies.clear();
    with.unflushed = false;
    return false;
  }
}

void Exchange::list_blocked(std::vector<Blocked>& blocked) const {
  for (int peer = 0; peer < team_.size(); ++peer) {
    const Channel& with = channels_[static_cast<std::size_t>(peer)];
    if (with.links == nullptr || with.ended || !is_busy(with)) continue;
    if (wants_steps(with)) blocked.push_back({peer, with.links->recv->wake()});
    const bool sends = !with.sends.empty() || !with.replies.empty() || !with.cleared.empty() || with.unflushed;
    if (sends) blocked.push_back({peer, with.links->send->wake()});
  }
}

// Steps of ranks that share memory are counted there, where that is how they come.
bool Exchange::has_taken(int peer, std::uint64_t steps) const {
  const Channel& from = channels_[static_cast<std::size_t>(peer)];
  if (from.links == nullptr || from.ended || (team_.shares_memory(peer) && !from.in_segment)) return false;
  return from.taken == steps && !from.incoming && reading_.empty();
}

bool Exchange::awaits_peer(const Operation& operation) const {
  if (!operation.sends) return true;
  return channels_[static_cast<std::size_t>(operation.peer)].told.contains(operation.id);
}

bool Exchange::has_ended(int peer) const { return channels_[static_cast<std::size_t>(peer)].ended; }

void Exchange::finish(Operation& operation) {
  operation.finished = true;
  if (operation.source != nullptr) *operation.source = operation.from_rank;
  --channel(operation.other()).operations;
  --operations_;
  finished_.push_back(&operation);
}

void Exchange::forget() {
  waiting_.clear();
  reading_.clear();
  finished_.clear();
  for (Channel& with : channels_) {
    with.sends.clear();
    with.cleared.clear();
    with.leaving.clear();
    with.told.clear();
    with.arriving.clear();
    with.replies.clear();
    with.incoming.reset();
    with.operations = 0;
    with.unflushed = false;
    with.ended = true;  // what the link still holds may lie in memory that is the caller's again
  }
  operations_ = pending_ = any_ = 0;
}

void Exchange::tell_unread() {
  for (const Unasked& unasked : unasked_) team_.note_unread(unasked.source, unasked.envelope.signature());
  for (int peer = 0; peer < team_.size(); ++peer) {
    const auto& incoming = channel(peer).incoming;
    if (incoming && incoming->envelope.is_message()) team_.note_unread(peer, incoming->envelope.signature());
  }
}

// ---- receiving ----

bool Exchange::take_step(int peer, Channel& from) {
  RecvLink& link = *from.links->recv;
  if (!from.incoming) {
    const StepHeader* header = link.try_step(nullptr, 0);
    if (header == nullptr) return false;
    from.incoming = Incoming{.envelope = unpacked(header->signature, peer), .bytes = header->bytes};
    begin(peer, from, header->bytes);
  }
  Incoming& incoming = *from.incoming;
  if (incoming.bytes != 0) {
    if (link.try_step(incoming.into, incoming.bytes) == nullptr) return false;
    if (link.data() != incoming.into) kernels::copy(incoming.into, link.data(), incoming.bytes, kernels::Stores::plain);
  }
  link.release();
  ++from.taken;
  complete(peer, from);
  return true;
}

// Where the bytes of a step go, before they are here.
void Exchange::begin(int peer, Channel& from, std::size_t bytes) {
  Incoming& incoming = *from.incoming;
  const Envelope& envelope = incoming.envelope;
  bool fits = bytes == 0;
  if (static_cast<int>(envelope.dtype) >= kDataTypeCount) {
    fits = false;
  } else if (envelope.kind == Envelope::Kind::whole) {
    fits = bytes == envelope.bytes() && bytes <= from.whole_bytes;
    if (!fits) bytes = 0;
    incoming.receive = match(peer, envelope);
    if (incoming.receive != nullptr) agree(*incoming.receive, envelope, peer);
    if (incoming.receive == nullptr) incoming.kept.resize(bytes);
    incoming.into = incoming.receive != nullptr ? incoming.receive->to : incoming.kept.data();
  } else if (envelope.kind == Envelope::Kind::data) {
    const auto found = from.arriving.find(envelope.id);
    incoming.receive = found == from.arriving.end() ? nullptr : found->second;
    fits = incoming.receive != nullptr && bytes != 0 && bytes <= incoming.receive->bytes - incoming.receive->done;
    if (fits) incoming.into = incoming.receive->to + incoming.receive->done;
  }
  if (!fits) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("rank {} sent {} bytes that rank {} cannot place in a message", peer, bytes, team_.rank()),
                peer);
  }
}

// All of the step is here.
void Exchange::complete(int peer, Channel& from) {
  Incoming incoming = std::move(*from.incoming);
  from.incoming.reset();
  const Envelope& envelope = incoming.envelope;
  switch (envelope.kind) {
    case Envelope::Kind::whole:
      if (incoming.receive != nullptr) {  // it has its bytes
        from.consumed += cost_of(incoming.bytes);
        incoming.receive->done = incoming.bytes;
        return finish(*incoming.receive);
      }
      if (Operation* receive = match(peer, envelope)) {  // posted meanwhile
        from.consumed += cost_of(incoming.bytes);
        agree(*receive, envelope, peer);
        return hand_on(*receive, incoming.kept.data(), peer);
      }
      unasked_.push_back({.envelope = envelope, .source = peer, .bytes = std::move(incoming.kept)});
      return;
    case Envelope::Kind::announced:
      if (Operation* receive = match(peer, envelope)) return begin_receive(*receive, envelope, peer);
      unasked_.push_back({.envelope = envelope, .source = peer});
      return;
    case Envelope::Kind::data:
      incoming.receive->done += incoming.bytes;
      if (incoming.receive->done != incoming.receive->bytes) return;
      from.arriving.erase(envelope.id);
      return finish(*incoming.receive);
    case Envelope::Kind::clear:
    case Envelope::Kind::taken:
    case Envelope::Kind::credit:
      return answered(peer, from, envelope);
  }
}

void Exchange::answered(int peer, Channel& by, const Envelope& envelope) {
  if (envelope.kind == Envelope::Kind::credit) {
    by.owed -= std::min<std::size_t>(by.owed, envelope.id);
    return;
  }
  const auto found = by.told.find(envelope.id);
  if (found == by.told.end()) {
    throw Error(ErrorCode::corrupt_message, fmt::format("rank {} answered a message that was never sent", peer), peer);
  }
  Operation& send = *found->second;
  by.told.erase(found);
  if (envelope.kind == Envelope::Kind::taken) return finish(send);
  by.cleared.push_back(&send);
}

// The first receive that takes it; it waits no more.
Operation* Exchange::match(int source, const Envelope& envelope) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Operation* receive) { return receive->takes(source, envelope.tag); });
  if (found == waiting_.end()) return nullptr;
  Operation* const receive = *found;
  waiting_.erase(found);
  receive->from_rank = source;
  if (receive->peer == kAnySource) {
    --any_;
    ++channel(source).operations;
  }
  return receive;
}

// The first message that it takes, of those that are here.
bool Exchange::take_unasked(Operation& receive) {
  const auto found = std::find_if(unasked_.begin(), unasked_.end(), [&](const Unasked& unasked) {
    return receive.takes(unasked.source, unasked.envelope.tag);
  });
  if (found == unasked_.end()) return false;
  const Unasked unasked = std::move(*found);
  unasked_.erase(found);
  receive.from_rank = unasked.source;
  if (receive.peer == kAnySource) {
    --any_;
    ++channel(unasked.source).operations;
  }
  agree(receive, unasked.envelope, unasked.source);
  if (unasked.envelope.kind == Envelope::Kind::announced) {
    begin_receive(receive, unasked.envelope, unasked.source);
  } else {
    channel(unasked.source).consumed += cost_of(unasked.bytes.size());
    hand_on(receive, unasked.bytes.data(), unasked.source);
  }
  return true;
}

void Exchange::agree(const Operation& receive, const Envelope& envelope, int source) const {
  Signature mine = receive.signature();
  const Signature theirs = envelope.signature();
  mine.sequence = theirs.sequence;
  if (mine == theirs) [[likely]]
    return;
  throw either_of(ErrorCode::mismatch, compare(team_.rank(), mine, source, theirs), team_.rank(), source);
}

void Exchange::hand_on(Operation& receive, const std::byte* bytes, int source) {
  if (receive.bytes != 0) kernels::copy(receive.to, bytes, receive.bytes, kernels::Stores::plain);
  receive.done = receive.bytes;
  receive.from_rank = source;
  finish(receive);
}

void Exchange::begin_receive(Operation& receive, const Envelope& envelope, int source) {
  agree(receive, envelope, source);
  receive.done = 0;
  if (receive.bytes == 0) {  // announced because too much was owed
    reply(source, Envelope::Kind::taken, envelope.id);
    return finish(receive);
  }
  if (receive.bytes >= least_read_ && team_.shares_memory(source)) {
    reading_.push_back({&receive, envelope, source});
    return;
  }
  channel(source).arriving.emplace(envelope.id, &receive);
  reply(source, Envelope::Kind::clear, envelope.id);
}

// A part of one message, which then waits behind the others. What the kernel refuses is asked for.
bool Exchange::read_on() {
  if (reading_.empty()) return false;
  const Reading reading = reading_.front();
  reading_.pop_front();
  Operation& receive = *reading.receive;
  const std::size_t bytes = std::min<std::size_t>(kReadBytes, receive.bytes - receive.done);
  const int refused = copy_from_process(team_.placement(reading.source).pid, reading.envelope.address + receive.done,
                                        receive.to + receive.done, bytes);
  if (refused != 0) {
    log::debug("rank {} cannot read a message where rank {} has it: {}", team_.rank(), reading.source,
               std::strerror(refused));
    receive.done = 0;
    channel(reading.source).arriving.emplace(reading.envelope.id, &receive);
    reply(reading.source, Envelope::Kind::clear, reading.envelope.id);
    return true;
  }
  receive.done += bytes;
  if (receive.done != receive.bytes) {
    reading_.push_back(reading);
    return true;
  }
  team_.failure().check();  // a sender that had given up may have been at its bytes
  reply(reading.source, Envelope::Kind::taken, reading.envelope.id);
  finish(receive);
  return true;
}

void Exchange::reply(int peer, Envelope::Kind kind, std::uint64_t id) {
  channel(peer).replies.push_back({.kind = kind, .id = id});
  ++pending_;
}

}  // namespace rondo::comm
