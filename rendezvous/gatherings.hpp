// SPDX-License-Identifier: Apache-2.0
// Exchanges and barriers: each participant brings a value and waits; the last one's arrival answers all.
#pragma once
#include <map>
#include <string>

#include "rendezvous/members.hpp"
#include "rendezvous/replies.hpp"
#include "rendezvous/survivals.hpp"

namespace rondo::rendezvous {

class Gatherings {
 public:
  Gatherings(Waits& waits, Replies& replies, const Members& members, const Survivals& survivals)
      : waits_(waits), replies_(replies), members_(members), survivals_(survivals) {}

  void arrive(Caller caller, const proto::Gather& gather, bool with_values, Time deadline);
  void expire(const std::string& name);  // fails for all who wait there
  // Fails what can no longer complete: where the connection has contributed, and, when a member is gone for good,
  // where all members, or the survivors of a communicator, are needed.
  void gone(ConnectionId connection, const std::string& description, const std::string& reason);
  void give_up(const Error& error);  // where a member has come: it is of a run that was given up

 private:
  struct Arrival {
    Caller caller;
    WaitId wait;
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

  void check(const Gathering& gathering, Caller caller, const proto::Gather& gather, bool with_values) const;
  const Member* absent_from(const Gathering& gathering, const std::string& name) const;  // for good, and needed
  void answer(Entry place, const SharedBody& body);

  Waits& waits_;
  Replies& replies_;
  const Members& members_;
  const Survivals& survivals_;
  std::map<std::string, Gathering> gatherings_;
};

}  // namespace rondo::rendezvous
