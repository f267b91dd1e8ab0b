// SPDX-License-Identifier: Apache-2.0
// The whole protocol of the server without I/O: connections, bytes and time go in, bytes, closings and timers come
// out. The sockets of server.cpp and the simulator of the tests drive this same code. One thread.
#pragma once
#include <map>
#include <string>
#include <unordered_map>

#include "comm/base/limits.hpp"
#include "rendezvous/room.hpp"

namespace rondo::rendezvous {

struct CoreOptions {
  RoomOptions room{};
  std::optional<Secret> secret{};
  bool encrypted = false;        // all that follows the proofs
  std::size_t strangers = 1024;  // connections that have not shown that they know the secret
  std::size_t greeted = 1024;    // that have, and not proven it yet
  std::chrono::milliseconds authenticate_within{5000};
  std::chrono::milliseconds evict_after{250};
};

// May be called from inside any function of the core; must not call back.
class Output {
 public:
  virtual ~Output() = default;
  virtual void send(ConnectionId connection, std::string head, SharedBody body) = 0;  // body: may be null
  // What is sent from now on goes through it, and what lies in its output before that.
  virtual void encrypt(ConnectionId connection, std::shared_ptr<TlsSession> tls) = 0;
  // After what was sent before, if that goes out soon. The core forgets the connection: do not report its end.
  virtual void close(ConnectionId connection) = 0;
  virtual void drop(ConnectionId connection) = 0;  // the same, and its descriptor is free on return
};

class Core final : private Replies {
 public:
  Core(const CoreOptions& options, Output& output);

  // Ids are new ones, rising. `address`: where it comes from, without port.
  void connected(ConnectionId id, const std::string& address, Time now);
  void received(ConnectionId id, std::span<const std::byte> bytes, Time now);
  // The server can take no more connections. True: strangers are not why, so an open round ends for all who wait.
  bool no_room(const std::string& sentence);
  void disconnected(ConnectionId id, const std::string& reason, Time now);
  void tick(Time now);
  std::optional<Time> next_timer() const;

  // Whether one more may be accepted now. The oldest stranger gives way for it, unless it is too young to have spoken.
  bool takes_one_more(Time now);
  // There is no descriptor for one more: whether one was freed.
  bool free_descriptor(Time now);
  // As many unauthenticated connections as allowed. tick() makes room.
  bool crowded() const { return many_strangers() || many_greeted(); }
  std::size_t connection_count() const { return connections_.size(); }
  std::size_t waiting_count() const { return room_.waiting_count(); }
  // Nobody is expected, and nobody who knows the secret is about to prove it.
  bool at_rest(Time now) const { return greeted_.empty() && room_.at_rest(now); }

 private:
  enum class Stage : std::uint8_t { hello, proof, keys, open };  // keys: of TLS
  struct Connection {
    std::string address;
    FrameReader reader{kMaxHelloBytes};
    Stage stage = Stage::hello;
    ServerHandshake handshake{};
    Seals seals{};
    std::shared_ptr<TlsSession> tls{};  // once proven, where it is encrypted
    Time since{}, last_heard{};
    std::chrono::milliseconds lease{0};
    bool left = false;
    bool doubted = false;  // its lease was over, and it has said nothing since
  };
  using Entry = std::unordered_map<ConnectionId, Connection>::iterator;

  void send(Caller caller, SharedBody body) override;
  bool frames(ConnectionId id, Connection& connection, Time now);
  void decrypt(ConnectionId id, Connection& connection, std::span<const std::byte> bytes, Time now);
  bool shake_hands(ConnectionId id, Connection& connection);
  void open(ConnectionId id, Connection& connection);
  bool frame(ConnectionId id, Connection& connection, std::string_view bytes, Time now);  // false: it has left
  void request(ConnectionId id, Connection& connection, std::string_view bytes, Time now);
  enum class End : std::uint8_t { final, busy };  // whether trying again may help; who may is dropped
  void refuse(ConnectionId id, const Error& error, End end, Time now);
  bool many_strangers() const { return strangers_.size() >= options_.strangers; }
  bool many_greeted() const { return greeted_.size() >= options_.greeted; }
  std::chrono::nanoseconds stranger_patience() const;
  void evict(const std::map<ConnectionId, Time>& from, Time now);
  void tick_unauthenticated(std::map<ConnectionId, Time>& all, Time now);
  void forget(ConnectionId id, Presence how, const std::string& reason, Time now);
  void tick_leases(Time now);

  CoreOptions options_;
  Output& output_;
  JobKey key_;
  Room room_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::map<ConnectionId, Time> strangers_, greeted_;  // oldest first
  std::set<std::pair<Time, ConnectionId>> leases_;    // looked at then, not necessarily over
  OncePerSecond closings_;                            // of those that never got in
};

}  // namespace rondo::rendezvous
