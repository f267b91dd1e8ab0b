// SPDX-License-Identifier: Apache-2.0
// Communicators that grow. Clients that want to be ranks wait in one line; a communicator's rank 0 takes in the first
// of them, and all meet in exchanges called "<growth>/…". The one called "<growth>/made" ends it; until then whoever
// goes, or gives up, fails it for all.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/error.hpp>

#include "rendezvous/key_values.hpp"
#include "rendezvous/members.hpp"
#include "rendezvous/replies.hpp"

namespace rondo::rendezvous {

// Kept as soon as a communicator has who calls itself so: which rank of the job it is now.
std::string joined_key(std::string_view calls_itself);

class Growths {
 public:
  Growths(Waits& waits, Replies& replies, Members& members, KeyValues& values)
      : waits_(waits), replies_(replies), members_(members), values_(values) {}

  struct Growth {
    std::vector<int> job_ranks{};  // by rank; none once it has failed
    std::size_t members = 0;       // the first so many of them were in the communicator that grows
    std::uint32_t round = 0;       // of the members
    std::optional<Error> failure{};
  };

  void enlist(Caller caller, const proto::Join& join, const std::string& address, Time deadline);
  void admit(Caller caller, const proto::Admit& request, Time deadline);
  // An earlier server has said so, and maybe not to all of its ranks: then it fails as soon as its rank 0 asks anew.
  void told(Caller caller, const proto::Membership& given);
  // Members that are lost. Another server may have known of a growth that this one does not.
  void miss(Caller caller, const proto::Missing& request);
  void give_up(Caller caller, const std::string& name, const proto::Failure& why);
  void look(Caller caller, const std::string& name);
  void expire(WaitId wait);
  void gone(ConnectionId connection);                          // after the members know
  void look_for_losses();                                      // the same, of who has no connection
  const Growth* of_exchange(std::string_view exchange) const;  // null: it is none of a growth's
  void completed(std::string_view exchange);
  bool awaits_joiners() const { return !admissions_.empty(); }

 private:
  struct Recruit {
    proto::Join join;
    std::string address;
    ConnectionId connection;
    WaitId wait;
  };
  struct Admission {
    Caller caller;
    WaitId wait;
    proto::Admit request;
  };
  using Table = std::map<std::string, Growth, std::less<>>;
  using Entry = Table::iterator;

  void check(Caller caller, const proto::Admit& request) const;
  void replace_growth_of(const proto::Admit& request);
  static bool is_asked_for(const proto::Admit& request, const std::vector<int>& job_ranks, std::size_t members);
  void note_asking(const proto::Admit& request);
  void refuse_other_releases(const std::string& release);
  void serve();
  void take_in(const Caller& caller, const proto::Admit& request, std::size_t joiners);
  void fail(Entry growth, const Error& error);
  void fail_unknown(const std::string& name, const Error& error);
  std::optional<Error> loss_in(const Table::value_type& entry) const;
  void note_joined(const Growth& growth) const;

  Waits& waits_;
  Replies& replies_;
  Members& members_;
  KeyValues& values_;
  std::vector<Recruit> line_;          // in order of arrival
  std::vector<Admission> admissions_;  // that wait for more of them
  Table growths_;                      // by name@generation: those not made, and the latest that failed
  std::deque<std::string> failed_;
  std::deque<proto::Admit> asked_;  // the latest, of each communicator once
};

}  // namespace rondo::rendezvous
