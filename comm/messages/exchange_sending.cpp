// SPDX-License-Identifier: Apache-2.0
// An Exchange's sending half: what goes onto the link with a peer, and when its bytes are the caller's again.
#include <algorithm>

#include "comm/messages/allowance.hpp"
#include "comm/messages/exchange.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kCopied = 8 << 10;  // what is shorter is copied, to be sent later if need be

}  // namespace

// Most messages have the tag of the one before.
std::uint64_t Exchange::next_number(Channel& to, int tag) {
  if (to.latest_number == nullptr || to.latest_tag != tag) {
    to.latest_number = &to.numbers[tag];  // stays where it is
    to.latest_tag = tag;
  }
  return ++*to.latest_number;
}

bool Exchange::pump(Channel& to) {
  SendLink& link = *to.links->send;
  bool moved = false;
  const auto say = [&](const Envelope& envelope) {
    count_step(to);
    link.publish(packed(envelope), 0);
    moved = true;
  };
  for (; !to.replies.empty() && link.ready(); --pending_) {
    say(to.replies.front());
    to.replies.pop_front();
  }
  if (to.consumed >= (to.sends.empty() ? kToldAlone : kToldWithMessage) && link.ready()) {
    say({.kind = Envelope::Kind::credit, .id = to.consumed});
    to.consumed = 0;
  }
  for (; !to.sends.empty() && link.ready(); moved = true) {
    Operation& send = *to.sends.front();
    to.sends.pop_front();
    tell(to, send);
  }
  for (int step = 0; step < kStepsPerTurn && !to.cleared.empty() && link.ready(); ++step, moved = true) send_part(to);
  if (moved && !to.unflushed) {
    to.unflushed = true;
    ++pending_;
  }
  if (to.unflushed) flush(to);
  return moved;
}

void Exchange::tell(Channel& to, Operation& send) {
  Envelope envelope{.sequence = send.sequence,
                    .count = send.count,
                    .dtype = send.dtype,
                    .kind = Envelope::Kind::whole,
                    .tag = send.tag,
                    .id = send.id,
                    .address = reinterpret_cast<std::uintptr_t>(send.from)};
  if (may_send_whole(to, send.bytes)) {
    if (send_whole(to, envelope, send.from)) return finish(send);
    to.leaving.push_back(&send);
    return;
  }
  envelope.kind = Envelope::Kind::announced;
  count_step(to);
  to.links->send->publish(packed(envelope), 0);
  to.told.emplace(send.id, &send);
}

bool Exchange::may_send_whole(const Channel& to, std::uint64_t bytes) const {
  return bytes <= to.whole_bytes && to.owed + cost_of(bytes) <= kUnaskedBytes;
}

// False: from where it lies, until the link is flushed.
bool Exchange::send_whole(Channel& to, const Envelope& envelope, const std::byte* from) {
  const std::uint64_t bytes = envelope.bytes();
  SendLink& link = *to.links->send;
  to.owed += cost_of(bytes);
  count_step(to);
  if (!to.in_segment && bytes > std::min(kCopied, whole_bytes_)) {  // that lies in a slot
    link.send(packed(envelope), from, bytes);
    return false;
  }
  if (bytes != 0) kernels::copy(link.slot(), from, bytes, kernels::Stores::plain);
  link.publish(packed(envelope), bytes);
  return true;
}

void Exchange::send_part(Channel& to) {
  Operation& send = *to.cleared.front();
  const std::size_t bytes = std::min<std::size_t>(to.links->longest_step, send.bytes - send.done);
  count_step(to);
  to.links->send->send(packed({.dtype = send.dtype, .kind = Envelope::Kind::data, .tag = send.tag, .id = send.id}),
                       send.from + send.done, bytes);
  send.done += bytes;
  if (send.done != send.bytes) return;
  to.cleared.pop_front();
  to.leaving.push_back(&send);
}

void Exchange::flush(Channel& to) {
  SendLink& link = *to.links->send;
  if (link.flushed()) {
    to.unflushed = false;
    --pending_;
  }
  std::erase_if(to.leaving, [&](Operation* send) {
    if (to.unflushed && link.refers_to(send->from, send->bytes)) return false;
    finish(*send);
    return true;
  });
}

}  // namespace rondo::comm
