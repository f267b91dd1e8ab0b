// SPDX-License-Identifier: Apache-2.0
#include "comm/team/control.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/transport/lost_peer.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kRoom = 4;  // messages: left over are a failure, a goodbye and what threads send at once

}  // namespace

Control::~Control() { stop(); }

void Control::stop() {
  for (const auto& peer : peers_) monitor_->unwatch(peer->watch);
}

void Control::add(int peer, Fd socket, std::unique_ptr<SecureStream> stream) {
  peers_.push_back(
      std::make_unique<Peer>(Peer{.rank = peer, .socket = std::move(socket), .stream = std::move(stream)}));
}

void Control::hear(int peer) {
  for (const auto& known : peers_) {
    if (known->rank == peer) monitor_->look(known->watch);
  }
}

int Control::socket(int peer) const {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& known) { return known->rank == peer; });
  return found == peers_.end() ? -1 : (*found)->socket.get();
}

void Control::start() {
  for (const auto& peer : peers_) {
    peer->watch = monitor_->watch(peer->socket.get(), [this, p = peer.get()] { return readable(*p); });
  }
}

void Control::announce_failure(ErrorCode code, const Culprits& culprits, std::string_view sentence) {
  Message message{.kind = Kind::failure, .code = static_cast<std::int32_t>(code), .culprits = culprits};
  message.length = static_cast<std::uint32_t>(std::min(sentence.size(), message.sentence.size()));
  std::copy_n(sentence.data(), message.length, message.sentence.data());
  send_all(message);
}
void Control::announce_waiting(const Signature& signature, const std::function<std::uint64_t(int peer)>& alone_after) {
  const std::lock_guard lock(sending_);
  for (const auto& peer : peers_)
    send(*peer, {.kind = Kind::waiting, .entered = alone_after ? alone_after(peer->rank) : 0, .signature = signature});
}
void Control::tell(int peer, const Signature& signature) {
  send_to(peer, {.kind = Kind::waiting, .signature = signature});
}
void Control::announce_departure(const Signature& latest, bool gave_up) {
  send_all({.kind = Kind::departure, .flags = gave_up ? 1U : 0U, .signature = latest});
}
void Control::announce_unmapped() { send_all({.kind = Kind::unmapped}); }
void Control::announce_attendance(std::uint64_t entered, std::uint64_t verdict) {
  send_all({.kind = Kind::attendance, .entered = entered, .verdict = verdict});
}

void Control::announce_apart(std::uint64_t split) { send_all({.kind = Kind::apart, .entered = split}); }

void Control::announce_abort(std::uint64_t mark) { send_all({.kind = Kind::abort, .entered = mark}); }

void Control::ask(std::uint64_t question, const Signature& about) {
  send_all({.kind = Kind::question, .question = question, .signature = about});
}
void Control::answer(int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags) {
  send_to(peer, {.kind = Kind::answer, .whom = whom, .question = question, .flags = flags, .signature = at});
}

// A message is far smaller than a socket's buffer and there are few of them: one that does not fit whole is a peer
// that has read nothing for long, and its connection is given up, which tells it as much. Those that repeat themselves
// are left out for a peer whose window they would close: a process may be stopped for as long as calls may take, and
// the kernel gives up whom it cannot deliver to.
void Control::send(Peer& peer, const Message& message) {
  const bool repeats = message.kind == Kind::waiting || message.kind == Kind::question || message.kind == Kind::answer;
  if (repeats && !peer_takes(peer.socket, kRoom * sizeof message)) return;
  constexpr long kWhole = sizeof message;
  long sent = 0;
  if (peer.stream) {
    sent = peer.stream->send(std::as_bytes(std::span(&message, 1)));
    if (sent == -EAGAIN || (sent == kWhole && peer.stream->flush() == -EAGAIN)) sent = 0;
  } else {
    sent = ::send(peer.socket.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (sent >= 0 && sent < kWhole) ::shutdown(peer.socket.get(), SHUT_WR);
}
void Control::send_all(const Message& message) {
  const std::lock_guard lock(sending_);
  for (const auto& peer : peers_) send(*peer, message);
}

void Control::send_to(int peer, const Message& message) {
  const std::lock_guard lock(sending_);
  for (const auto& known : peers_) {
    if (known->rank == peer) send(*known, message);
  }
}

long Control::receive(Peer& peer, std::span<std::byte> into) {
  if (peer.stream) {
    const std::lock_guard lock(sending_);
    return peer.stream->recv(into);
  }
  const ssize_t received = ::recv(peer.socket.get(), into.data(), into.size(), MSG_DONTWAIT);
  return received < 0 ? -errno : received;
}

void Control::lose(const Peer& peer, long result) {
  if (result == -EBADMSG) {
    return events_.failed(peer.rank, ErrorCode::corrupt_message, peer.rank, changed_on_its_way(peer.rank, "control"));
  }
  events_.lost(peer.rank, result == 0 ? "it closed its connection" : std::strerror(static_cast<int>(-result)));
}

bool Control::readable(Peer& peer) {
  for (;;) {
    auto* into = reinterpret_cast<std::byte*>(&peer.incoming) + peer.got;
    const long received = receive(peer, {into, sizeof peer.incoming - peer.got});
    if (received == -EAGAIN || received == -EWOULDBLOCK || received == -EINTR) return true;
    if (received <= 0) {
      if (!peer.departed) lose(peer, received);
      return false;
    }
    peer.got += static_cast<std::size_t>(received);
    if (peer.got < sizeof peer.incoming) continue;
    peer.got = 0;
    deliver(peer);
  }
}

void Control::deliver(Peer& peer) {
  const Message& message = peer.incoming;
  const auto complain = [&] {
    events_.failed(peer.rank, ErrorCode::corrupt_message, peer.rank,
                   fmt::format("rank {} sent a control message that no peer of ours sends", peer.rank));
  };
  if (static_cast<int>(message.signature.collective) >= kCollectiveCount) return complain();
  if (message.kind == Kind::failure || message.kind == Kind::departure) acknowledge_now(peer.socket);
  switch (message.kind) {
    case Kind::failure: {
      const std::size_t length = std::min<std::size_t>(message.length, message.sentence.size());
      events_.failed(peer.rank, static_cast<ErrorCode>(message.code), message.culprits,
                     std::string_view(message.sentence.data(), length));
      return;
    }
    case Kind::waiting:
      events_.waiting(peer.rank, message.signature, message.entered);
      return;
    case Kind::departure:
      peer.departed = true;
      events_.departed(peer.rank, message.signature, message.flags != 0);
      return;
    case Kind::unmapped:
      events_.unmapped(peer.rank);
      return;
    case Kind::attendance:
      events_.attends(peer.rank, message.entered, message.verdict);
      return;
    case Kind::apart:
      events_.apart(peer.rank, message.entered);
      return;
    case Kind::abort:
      events_.aborted(peer.rank, message.entered);
      return;
    case Kind::question:
      events_.asked(peer.rank, message.question, message.signature);
      return;
    case Kind::answer:
      events_.answered(peer.rank, message.question, message.whom, message.signature, message.flags);
      return;
  }
  complain();
}

}  // namespace rondo::comm
