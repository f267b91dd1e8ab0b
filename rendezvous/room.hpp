// SPDX-License-Identifier: Apache-2.0
// What the server knows about a job: requests and time in, replies out. Knows nothing of sockets, frames or secrets.
#pragma once
#include "rendezvous/gatherings.hpp"
#include "rendezvous/growths.hpp"
#include "rendezvous/key_values.hpp"
#include "rendezvous/members.hpp"
#include "rendezvous/survivals.hpp"

namespace rondo::rendezvous {

inline constexpr const char* kStarterKey = "rondo/starter";

class Room {
 public:
  Room(const RoomOptions& options, Replies& replies);

  // A mistake of the caller is answered; nothing a client says throws here.
  void request(Caller caller, const proto::Request& request, const std::string& address, Time now);
  void gone(ConnectionId connection, Presence how, const std::string& reason, Time now);
  void tick(Time now);
  void end_round(const Error& error) { members_.fail_round(error); }  // for those who wait for all ranks
  std::optional<Time> next_timer() const;
  std::size_t waiting_count() const { return waits_.count(); }
  // No rank is awaited. What else clients wait for, as launchers do all the time, others bring that are there already.
  bool at_rest(Time now) const { return members_.at_rest(now) && !growths_.awaits_joiners(); }

 private:
  void dispatch(Caller caller, const proto::Request& request, const std::string& address, Time deadline, Time now);
  void take_told(Caller caller, const proto::Told& told, Time now);
  void expire(WaitId wait);

  Waits waits_;
  Replies& replies_;
  KeyValues values_;
  Members members_;
  Survivals survivals_;
  Growths growths_;
  Gatherings gatherings_;
};

}  // namespace rondo::rendezvous
