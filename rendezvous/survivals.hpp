// SPDX-License-Identifier: Apache-2.0
// Survivors of a failed communicator ask who is left; as soon as all of its members that live have asked, each gets
// the same list. Where a rank died while a communicator was growing, some may ask for the larger one and others for the
// smaller: then all get the survivors of the smaller one.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/key_values.hpp"
#include "rendezvous/members.hpp"
#include "rendezvous/replies.hpp"

namespace rondo::rendezvous {

// Kept as soon as others ask who survived a communicator of this rank of the job, and it is gone.
std::string missed_key(int job_rank);

class Survivals {
 public:
  Survivals(Waits& waits, Replies& replies, const Members& members, KeyValues& values)
      : waits_(waits), replies_(replies), members_(members), values_(values) {}

  // True: it was one of the survivors of another try, and has given up meeting them.
  bool ask(Caller caller, const proto::Survive& request, Time deadline);
  void miss(Caller caller, const proto::Missing& request);  // members that are not awaited any more
  void told(Caller caller, const proto::Told& told);        // an earlier server has decided
  void expire(const std::string& name);
  void gone(ConnectionId connection);
  void look_for_losses();            // after the members know
  void give_up(const Error& error);  // all of them: their members are of a run that was given up
  // Survivors go on to meet in exchanges called "<name>/…", and one of them may go meanwhile, or give up: the first
  // that has; null: none has. Nothing: that is no exchange of theirs.
  std::optional<const Member*> first_absent(std::string_view exchange, std::size_t participants) const;
  bool has_given_up(std::string_view exchange, const Member& member) const;

 private:
  struct Survival {
    std::vector<int> members{};  // ranks of the job
    std::map<int, std::pair<ConnectionId, WaitId>> asked{};
    std::set<int> missing{};  // as their peers say
    std::vector<int> decided{};
    std::uint64_t number = 0;  // of the decision, in their order
    std::set<int> given_up{};  // of those decided on
    std::string growth{};      // of which those who ask do not know whether all members have it
    std::string instead{};     // then: what they ask if some have not
    std::size_t smaller = 0;   // and of how many members
    std::string gave_up{};     // the growth that somebody who asks has given up
  };
  static proto::Survive of_smaller(const proto::Survive& of_larger);
  bool is_given_up(const proto::Survive& request) const;
  void check_not_gone_on(const std::string& growth, int index) const;
  bool take_back(const std::string& growth);  // from the larger communicator
  void turn_away_from_smaller(const std::string& growth);
  bool note_doubt(Survival& survival, const proto::Survive& request);
  void settle(Survival& survival);
  bool give_up_others(const std::string& name, const std::vector<int>& members, int index);
  bool lives(const Survival& survival, int index) const;
  bool never_made(const Survival& survival, int index) const;
  void turn_away(const Survival& decided, int index);
  void note_missed(const Survival& survival);
  std::vector<int> awaited(const Survival& survival) const;  // indices that live and have not asked
  void answer(Survival& survival, const SharedBody& body);
  void reply_decided(const Survival& survival, const std::string& name, int index, Caller caller);
  static SharedBody list_body(const Survival& survival);

  Waits& waits_;
  Replies& replies_;
  const Members& members_;
  KeyValues& values_;
  std::map<std::string, Survival, std::less<>> survivals_;
  std::uint64_t decisions_ = 0;
};

}  // namespace rondo::rendezvous
