// SPDX-License-Identifier: Apache-2.0
#include "comm/device/proxy/proxy_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include <rondo/error.hpp>

#include "kernels/device/kernels.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::kLine;
using kernels::device::Mailbox;
using kernels::device::Protocol;
using kernels::device::SlotHeader;

// Kernels write these words with release at system scope, credits apart; ours they read with acquire.
std::uint64_t load_acquire(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
void store_release(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// Kernels carry all of a signature but its past.
comm::Signature widen(const kernels::device::DeviceSignature& from) {
  static_assert(sizeof from == offsetof(comm::Signature, past));
  comm::Signature signature;
  std::memcpy(static_cast<void*>(&signature), &from, sizeof from);
  return signature;
}

}  // namespace

ProxyLink::ProxyLink(const Regions& regions, int peer, SendLink& send, RecvLink& recv, std::size_t piece_bytes,
                     std::span<const int> names)
    : layout_(regions.layout()),
      rank_(regions.cards().rank()),
      peer_(peer),
      own_name_(names.empty() ? rank_ : names[static_cast<std::size_t>(rank_)]),
      peer_name_(names.empty() ? peer : names[static_cast<std::size_t>(peer)]),
      ends_(regions.link_ends(peer)),
      send_(send),
      recv_(recv),
      piece_bytes_(piece_bytes),
      channels_(static_cast<std::size_t>(layout_.channels)) {}

// The peer's end of the links lies at our offsets in its region, ours at its: `owner_peer` is the other rank of each.
Mailbox& ProxyLink::mailbox(std::byte* base, int owner_peer, std::size_t channel) const {
  return *reinterpret_cast<Mailbox*>(base +
                                     layout_.mailbox_offset(owner_peer, static_cast<int>(channel), Protocol::simple));
}
std::byte* ProxyLink::slot(Mailbox& mailbox, std::uint64_t step) const {
  const auto& shape = layout_.fifo[static_cast<int>(Protocol::simple)];
  return reinterpret_cast<std::byte*>(&mailbox + 1) + (step & (shape.slots - 1)) * shape.slot_bytes;
}

bool ProxyLink::progress() {
  const bool received = receive_some();
  return send_some() || received;
}

bool ProxyLink::finished() { return gone_ || heard_farewell_; }
bool ProxyLink::backlogged() { return out_.active() || !send_.flushed(); }

bool ProxyLink::send_some() {
  if (gone_) {
    check_leftovers();
    return false;
  }
  if (!send_pieces()) return false;
  if (heard_goodbye_ || said_goodbye_) return part();
  bool moved = false;
  // Credits first: they are small, and the peer may be standing still for want of one.
  for (std::size_t c = 0; c < channels_.size(); ++c) moved |= send_credit(c);
  for (std::size_t i = 0; i < channels_.size() && !out_.active(); ++i) {
    moved |= send_step((next_ + i) % channels_.size());
  }
  if (++next_ == channels_.size()) next_ = 0;
  if (!leaving_ || moved || out_.active()) return moved;
  return part();
}

bool ProxyLink::part() {
  if (heard_goodbye_) {
    if (!send_.ready()) return false;
    send_frame({.kind = Kind::farewell});
    gone_ = true;
    return true;
  }
  if (said_goodbye_ || !send_.ready()) return false;
  send_frame({.kind = Kind::goodbye});
  said_goodbye_ = true;
  return true;
}

void ProxyLink::check_leftovers() const {
  if (leaving_) return;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    if (load_acquire(mailbox(ends_.theirs, rank_, c).posted) == channels_[c].sent) continue;
    throw Error(ErrorCode::aborted,
                fmt::format("rank {} destroyed its communicator while rank {} has data for it", peer_name_, own_name_),
                peer_);
  }
}

bool ProxyLink::send_credit(std::size_t channel) {
  const std::uint64_t freed = cuda::load_credit(mailbox(ends_.theirs, rank_, channel).freed);
  if (freed == channels_[channel].credited || !send_.ready()) return false;
  send_frame({.kind = Kind::credit, .channel = static_cast<std::uint16_t>(channel), .step = freed});
  channels_[channel].credited = freed;
  return true;
}

// The slot stays as it is until the peer's credit comes back, so the link may refer to it until then.
bool ProxyLink::send_step(std::size_t channel) {
  Mailbox& theirs = mailbox(ends_.theirs, rank_, channel);
  const std::uint64_t step = channels_[channel].sent;
  if (load_acquire(theirs.posted) == step || !send_.ready()) return false;
  std::byte* const from = slot(theirs, step);
  SlotHeader header;
  std::memcpy(&header, from, sizeof header);
  if (header.bytes > slot_capacity(Protocol::simple, layout_.fifo[0].slot_bytes)) {
    throw Error(
        ErrorCode::corrupt_message,
        fmt::format("a kernel of rank {} left a step of {} bytes for rank {}", own_name_, header.bytes, peer_name_),
        rank_);
  }
  out_ = {.data = from + kLine,
          .bytes = header.bytes,
          .frame = {.kind = Kind::step,
                    .channel = static_cast<std::uint16_t>(channel),
                    .signature = header.signature,
                    .step = step,
                    .bytes = header.bytes}};
  send_frame(out_.frame);
  channels_[channel].sent = step + 1;
  send_pieces();
  return true;
}

// False: the link is full before the step has left.
bool ProxyLink::send_pieces() {
  while (out_.active() && out_.done < out_.bytes) {
    if (!send_.ready()) return false;
    const std::size_t piece = std::min(piece_bytes_, out_.bytes - out_.done);
    send_.send(widen(out_.frame.signature), out_.data + out_.done, piece);
    out_.done += piece;
  }
  send_.flushed();  // leaves now
  out_ = {};
  return true;
}

void ProxyLink::send_frame(const Frame& frame) {
  std::memcpy(send_.slot(), &frame, sizeof frame);
  send_.publish(widen(frame.signature), sizeof frame);
  send_.flushed();
}

bool ProxyLink::receive_some() {
  bool moved = false;
  while (!gone_ && !heard_farewell_) {
    std::byte* const into = in_.active() ? in_.data + in_.done : reinterpret_cast<std::byte*>(&incoming_);
    const std::size_t bytes = in_.active() ? std::min(piece_bytes_, in_.bytes - in_.done) : sizeof incoming_;
    const StepHeader* header = recv_.try_step(into, bytes);
    if (header == nullptr) return moved;
    if (header->bytes != bytes) refuse("a step of another length than was announced");
    if (recv_.data() != into) std::memcpy(into, recv_.data(), bytes);
    recv_.release();
    moved = true;
    if (!in_.active()) {
      take(incoming_);
      continue;
    }
    in_.done += bytes;
    if (in_.done == in_.bytes) finish_step();
  }
  return moved;
}

void ProxyLink::take(const Frame& frame) {
  if (frame.kind == Kind::goodbye || frame.kind == Kind::farewell) {
    (frame.kind == Kind::goodbye ? heard_goodbye_ : heard_farewell_) = true;
    return;
  }
  if (frame.channel >= channels_.size()) refuse("a frame of a channel that there is not");
  Channel& channel = channels_[frame.channel];
  Mailbox& mine = mailbox(ends_.mine, peer_, frame.channel);
  if (frame.kind == Kind::credit) {
    if (frame.step <= channel.returned || frame.step > channel.sent) refuse("a credit for what it has not been sent");
    channel.returned = frame.step;
    store_release(mine.freed, frame.step);
    return;
  }
  // It had a free slot here: its kernels wait for our credits, and those say what our kernels have freed.
  const bool fits = frame.step == channel.received && frame.step - channel.credited < layout_.fifo[0].slots;
  if (!fits || frame.bytes > slot_capacity(Protocol::simple, layout_.fifo[0].slot_bytes)) {
    refuse("a step that does not fit");
  }
  in_ = {.data = slot(mine, frame.step) + kLine, .bytes = frame.bytes, .frame = frame};
  if (in_.bytes == 0) finish_step();
}

void ProxyLink::finish_step() {
  const Frame& frame = in_.frame;
  const SlotHeader header{.signature = frame.signature, .step = frame.step, .bytes = frame.bytes};
  std::memcpy(in_.data - kLine, &header, sizeof header);
  channels_[frame.channel].received = frame.step + 1;
  store_release(mailbox(ends_.mine, peer_, frame.channel).posted, frame.step + 1);
  in_ = {};
}

void ProxyLink::refuse(const char* why) const {
  throw Error(ErrorCode::corrupt_message,
              fmt::format("the proxy of rank {} got {} from rank {}", own_name_, why, peer_name_), peer_);
}

}  // namespace rondo::comm::device
