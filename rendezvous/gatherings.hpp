// SPDX-License-Identifier: Apache-2.0
// Exchanges and barriers: each participant brings a value and waits; the last one's arrival answers all.
#pragma once
#include <map>
#include <string>

#include "rendezvous/growths.hpp"
#include "rendezvous/members.hpp"
#include "rendezvous/replies.hpp"
#include "rendezvous/survivals.hpp"
#include "rendezvous/unheard.hpp"

namespace rondo::rendezvous {

class Gatherings {
 public:
  Gatherings(Waits& waits, Replies& replies, const Members& members, const Survivals& survivals, Growths& growths)
      : waits_(waits), replies_(replies), members_(members), survivals_(survivals), growths_(growths) {}

  void arrive(Caller caller, const proto::Gather& gather, bool with_values, Time deadline);
  // An earlier server has answered the caller, and maybe not all others: it counts as having come, and does not wait.
  void told(Caller caller, const proto::Gather& gather, bool with_values);
  void expire(const std::string& name);  // fails for all who wait there
  void fail_hopeless();                  // what can no longer complete, since a member is gone or a growth has failed
  // The same, and where the connection has contributed.
  void gone(ConnectionId connection, const std::string& description, const std::string& reason);
  void give_up(const Error& error);  // where a member has come: it is of a run that was given up

 private:
  struct Arrival {
    Caller caller;
    WaitId wait;  // 0: it does not wait
    std::string value;
  };
  struct Gathering {
    std::uint32_t participants = 0;
    bool with_values = false;
    bool of_members = false;  // some of those who came have joined
    std::size_t bytes = 0;
    std::map<std::uint32_t, Arrival> arrived{};
  };
  using Entry = std::map<std::string, Gathering>::iterator;

  Entry place_for(Caller caller, const proto::Gather& gather, bool with_values);
  void add(Entry place, Caller caller, const proto::Gather& gather, WaitId wait);
  void check(const Gathering& gathering, Caller caller, const proto::Gather& gather, bool with_values) const;
  // Why not all will come: somebody who is needed is gone for good, or has given up. Nothing: they may.
  std::optional<Error> obstacle_to(const Gathering& gathering, const std::string& name) const;
  void answer(Entry place, const SharedBody& body);
  void fail(Entry place, const Error& error);  // somebody was lost: those who come later hear of it, too

  Waits& waits_;
  Replies& replies_;
  const Members& members_;
  const Survivals& survivals_;
  Growths& growths_;
  std::map<std::string, Gathering> gatherings_;
  Unheard unheard_;
};

}  // namespace rondo::rendezvous
