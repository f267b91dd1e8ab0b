// SPDX-License-Identifier: Apache-2.0
// How the parts of the room answer: at once or later, one request or many with the same body.
#pragma once
#include "proto/rondo.pb.h"
#include "rendezvous/handshake.hpp"
#include "rendezvous/waits.hpp"
#include "rendezvous/wire.hpp"

namespace rondo::rendezvous {

class Replies {
 public:
  virtual ~Replies() = default;
  virtual void send(Caller caller, SharedBody body) = 0;

  void send(Caller caller, const proto::Reply& reply) { send(caller, body_of(reply)); }
  void fail(Caller caller, const Error& error) { send(caller, body_of(error)); }
  void fail_for_now(Caller caller, const Error& error) {  // NotYet at the other end
    proto::Reply reply;
    fill(*reply.mutable_failure(), error);
    reply.mutable_failure()->set_busy(true);
    send(caller, reply);
  }

  static SharedBody body_of(const proto::Reply& reply) {
    return std::make_shared<const Body>(reply.SerializeAsString());
  }
  static SharedBody body_of(const Error& error) {
    proto::Reply reply;
    fill(*reply.mutable_failure(), error);
    return body_of(reply);
  }
};

// "2, 5-7, 9 and 12 more": a list of ranks that stays readable.
std::string list_of(const std::vector<int>& numbers);

}  // namespace rondo::rendezvous
