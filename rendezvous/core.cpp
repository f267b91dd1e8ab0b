// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"

namespace rondo::rendezvous {
namespace {

// However few may be there at once: a queue of 4,096 strangers is worked off in a quarter of a second.
constexpr int kStrangersPerEviction = 4096;

// Of a lease that seems to be over: a server that has stood still, or had no processor, finds all of them so, and what
// clients said meanwhile still to be read.
constexpr std::chrono::milliseconds kSecondLook{250};

}  // namespace

Core::Core(const CoreOptions& options, Output& output)
    : options_(options), output_(output), key_(options.secret, options.encrypted), room_(options.room, *this) {
  if (options.room.job.size() > kMaxJobBytes) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a job id has at most {} bytes, this one {}", kMaxJobBytes, options.room.job.size()));
  }
}

void Core::connected(ConnectionId id, const std::string& address, Time now) {
  Connection& connection = connections_[id];
  connection.address = address;
  connection.since = connection.last_heard = now;
  strangers_.emplace(id, now);
}

void Core::received(ConnectionId id, std::span<const std::byte> bytes, Time now) {
  const Entry place = connections_.find(id);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  connection.last_heard = now;
  connection.doubted = false;
  try {
    if (connection.tls) return decrypt(id, connection, bytes, now);
    connection.reader.feed(bytes);
    if (!frames(id, connection, now) || connection.stage != Stage::keys) return;
    const std::string behind = connection.reader.take_rest();
    decrypt(id, connection, as_bytes(behind), now);
  } catch (const Error& error) {
    refuse(id, error, End::final, now);
  }
}

// False: it has left.
bool Core::frames(ConnectionId id, Connection& connection, Time now) {
  while (connection.stage != Stage::keys) {
    const auto next = connection.reader.next();
    if (!next) return true;
    if (!frame(id, connection, *next, now)) return false;
  }
  return true;
}

void Core::decrypt(ConnectionId id, Connection& connection, std::span<const std::byte> bytes, Time now) {
  connection.tls->feed(bytes);
  if (connection.stage == Stage::keys && !shake_hands(id, connection)) return;
  std::array<std::byte, 16384> some;
  for (;;) {
    const long got = connection.tls->tls().read(some);
    if (got == -EAGAIN || got == 0) return;
    if (got < 0) {
      throw Error(ErrorCode::corrupt_message, "what came over its encrypted connection was changed on its way");
    }
    connection.reader.feed({some.data(), static_cast<std::size_t>(got)});
    if (!frames(id, connection, now)) return;
  }
}

bool Core::shake_hands(ConnectionId id, Connection& connection) {
  const long result = connection.tls->tls().shake_hands();
  output_.send(id, {}, nullptr);
  if (result == -EAGAIN) return false;
  if (result != 0) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("its encrypted connection did not come about ({})", connection.tls->tls().reason()));
  }
  open(id, connection);
  return true;
}

void Core::open(ConnectionId id, Connection& connection) {
  connection.reader.set_limit(kMaxRequestBytes);
  connection.stage = Stage::open;
  strangers_.erase(id);
  greeted_.erase(id);
}

bool Core::frame(ConnectionId id, Connection& connection, std::string_view bytes, Time now) {
  switch (connection.stage) {
    case Stage::hello: {
      const proto::ServerHello answer = connection.handshake.answer(bytes, options_.room.job, key_);
      output_.send(id, plain_frame(answer.SerializeAsString()), nullptr);
      connection.stage = Stage::proof;
      if (connection.handshake.is_likely_ours()) {
        strangers_.erase(id);
        greeted_.emplace(id, connection.since);
      }
      return true;
    }
    case Stage::proof:
      connection.seals = connection.handshake.finish(bytes, key_);
      if (!key_.encrypted()) {
        open(id, connection);
        return true;
      }
      connection.tls = connection.handshake.encrypt(key_);
      connection.stage = Stage::keys;
      output_.encrypt(id, connection.tls);
      return true;
    case Stage::keys:
    case Stage::open:
      break;
  }
  request(id, connection, bytes, now);
  if (!connection.left) return true;
  forget(id, Presence::left, "", now);
  output_.close(id);
  return false;
}

void Core::request(ConnectionId id, Connection& connection, std::string_view bytes, Time now) {
  const Seal::Opened opened = connection.seals.receive.open(bytes);
  proto::Request request;
  if (!request.ParseFromArray(opened.body.data(), static_cast<int>(opened.body.size()))) {
    throw Error(ErrorCode::corrupt_message, "a request cannot be read; use the same release of rondo on both sides");
  }
  connection.left = request.has_leave();
  if (request.has_join() && request.join().lease_ms() > 0) {
    connection.lease = std::chrono::milliseconds(request.join().lease_ms());
    leases_.emplace(now + connection.lease, id);
  }
  room_.request({id, opened.request}, request, connection.address, now);
}

void Core::send(Caller caller, SharedBody body) {
  const Entry place = connections_.find(caller.connection);
  if (place == connections_.end()) return;  // it went away while others were answered
  std::string head = place->second.seals.send.head(caller.request, *body);
  output_.send(caller.connection, std::move(head), std::move(body));
}

// Says why in the form the connection's stage allows, then closes.
void Core::refuse(ConnectionId id, const Error& error, End end, Time now) {
  const Connection& connection = connections_.at(id);
  int others = 0;
  if (connection.stage == Stage::open || closings_.now(others)) {
    log::info("rendezvous: closing the connection from {}{}: {}", connection.address, and_others(others), error.what());
  }
  if (connection.stage == Stage::open) {
    Replies::fail({id, 0}, error);
  } else if (connection.stage != Stage::keys) {  // it expects TLS then, of which this is none
    proto::ServerHello answer;
    fill(*answer.mutable_refusal(), error);
    answer.mutable_refusal()->set_busy(end == End::busy);
    output_.send(id, plain_frame(answer.SerializeAsString()), nullptr);
  }
  forget(id, Presence::lost, error.what(), now);
  if (end == End::busy) return output_.drop(id);
  output_.close(id);
}

void Core::forget(ConnectionId id, Presence how, const std::string& reason, Time now) {
  const Entry place = connections_.find(id);
  if (place == connections_.end()) return;
  const bool was_open = place->second.stage == Stage::open;
  strangers_.erase(id);
  greeted_.erase(id);
  connections_.erase(place);
  if (was_open) room_.gone(id, how, reason, now);
}

void Core::disconnected(ConnectionId id, const std::string& reason, Time now) {
  forget(id, Presence::lost, reason, now);
}

bool Core::no_room(const std::string& sentence) {
  if (2 * (strangers_.size() + greeted_.size()) >= connections_.size()) return false;
  room_.end_round(Error(ErrorCode::system, sentence));
  return true;
}

void Core::tick(Time now) {
  tick_unauthenticated(strangers_, now);
  tick_unauthenticated(greeted_, now);
  tick_leases(now);
  room_.tick(now);
}

std::chrono::nanoseconds Core::stranger_patience() const {
  return std::chrono::nanoseconds(options_.evict_after) * options_.strangers / kStrangersPerEviction;
}

void Core::evict(const std::map<ConnectionId, Time>& from, Time now) {
  const std::string sentence = fmt::format("the server has {} unauthenticated connections; this is the oldest",
                                           strangers_.size() + greeted_.size());
  refuse(from.begin()->first, Error(ErrorCode::timeout, sentence), End::busy, now);
}

bool Core::takes_one_more(Time now) {
  if (many_greeted()) return false;
  if (!many_strangers()) return true;
  if (now < strangers_.begin()->second + stranger_patience()) return false;
  evict(strangers_, now);
  return true;
}

bool Core::free_descriptor(Time now) {
  const bool of_strangers = !strangers_.empty();
  if (!of_strangers && (greeted_.empty() || now < greeted_.begin()->second + options_.evict_after)) return false;
  evict(of_strangers ? strangers_ : greeted_, now);
  return true;
}

// One gives way where there are many; others do when they have had the time that everybody has.
void Core::tick_unauthenticated(std::map<ConnectionId, Time>& all, Time now) {
  const bool many = &all == &strangers_ ? many_strangers() : many_greeted();
  const auto patience = &all == &strangers_ ? stranger_patience() : options_.evict_after;
  if (many && now >= all.begin()->second + patience) evict(all, now);
  while (!all.empty() && now >= all.begin()->second + options_.authenticate_within) {
    const auto limit_ms = options_.authenticate_within.count();
    refuse(all.begin()->first,
           Error(ErrorCode::timeout, fmt::format("the client did not authenticate within {} ms", limit_ms)), End::final,
           now);
  }
}

void Core::tick_leases(Time now) {
  while (!leases_.empty() && leases_.begin()->first <= now) {
    const ConnectionId id = leases_.begin()->second;
    leases_.erase(leases_.begin());
    const Entry place = connections_.find(id);
    if (place == connections_.end()) continue;
    Connection& connection = place->second;
    const bool was_doubted = std::exchange(connection.doubted, now >= connection.last_heard + connection.lease);
    if (!connection.doubted) {
      leases_.emplace(connection.last_heard + connection.lease, id);
    } else if (!was_doubted) {
      leases_.emplace(now + kSecondLook, id);
    } else {
      refuse(id,
             Error(ErrorCode::peer_lost, fmt::format("nothing was heard from it for {} ms", connection.lease.count())),
             End::final, now);
    }
  }
}

std::optional<Time> Core::next_timer() const {
  std::optional<Time> next = room_.next_timer();
  const auto sooner = [&](Time time) { next = next ? std::min(*next, time) : time; };
  const auto within = [&](bool many, std::chrono::nanoseconds patience) {
    return many ? patience : options_.authenticate_within;
  };
  if (!strangers_.empty()) sooner(strangers_.begin()->second + within(many_strangers(), stranger_patience()));
  if (!greeted_.empty()) sooner(greeted_.begin()->second + within(many_greeted(), options_.evict_after));
  if (!leases_.empty()) sooner(leases_.begin()->first);
  return next;
}

}  // namespace rondo::rendezvous
