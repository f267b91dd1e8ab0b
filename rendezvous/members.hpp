// SPDX-License-Identifier: Apache-2.0
// Who has joined: one round per generation, which is open until every rank has come and complete ever after.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "rendezvous/replies.hpp"

namespace rondo::rendezvous {

struct RoomOptions {
  std::string job{};
  int world_size = -1;
  bool is_rank_0s = false;  // the server: see NotYet
  std::string name{};       // of the server, unlike that of any before it
  std::string starter{};    // of the server's process, kept under kStarterKey unless it is empty
  std::size_t store_bytes = std::size_t{256} << 20;
  // Where the server went away and came back: who has not come back to it by then counts as lost.
  std::chrono::milliseconds come_back_within{10'000};
};

enum class Presence : std::uint8_t { alive, left, lost };

struct Member {
  proto::Join join;  // as asked for; rank and local_rank are filled in when the round is complete
  ConnectionId connection = 0;
  WaitId wait = 0;  // while the round is open
  std::string address;
  // A process may join more than once; it is gone when the last of them is. 0: it was a member of an earlier server at
  // this address and has not come to this one yet.
  int connections = 1;
  int joins = 1;  // ever
  Presence presence = Presence::alive;
  std::string reason{};  // why it is lost
  Time gone_since{};
  int node = 0, local_rank = 0, local_size = 1;

  bool never_came() const { return connections == 0 && join.instance().empty(); }  // to this server
};

class Members {
 public:
  // given_up: of the ranks of the generation before, when another one begins.
  Members(Waits& waits, Replies& replies, const RoomOptions& options, std::function<void(const Error&)> given_up)
      : waits_(waits),
        replies_(replies),
        job_(options.job),
        server_(options.name),
        fixed_world_size_(options.world_size),
        is_rank_0s_(options.is_rank_0s),
        come_back_within_(options.come_back_within),
        given_up_(std::move(given_up)) {}

  void join(Caller caller, const proto::Join& join, const std::string& address, Time deadline, Time now);
  void fail_round(const Error& error);  // the open one, for everybody in it
  void expire();                        // the open round fails for everybody in it: somebody's deadline has passed
  void gone(ConnectionId connection, Presence how, const std::string& reason, Time now);
  // One more than the round had, which is complete: returns its rank in the job.
  int append(const proto::Join& join, ConnectionId connection, const std::string& address);
  // Ranks of the job that its other members know of. Where the server came back, and those have not come again yet that
  // were appended to the round, they count as alive for a while.
  template <class Ranks>
  void expect(const Ranks& job_ranks, Time now) {
    for (const auto rank : job_ranks) make_room_for(static_cast<std::int64_t>(rank), now);
  }
  bool tick(Time now);  // whether more of them count as lost
  std::optional<Time> next_timer() const {
    return not_back_.empty() ? std::nullopt : std::optional(not_back_.front().first);
  }

  bool complete() const { return complete_; }
  int world_size() const { return world_size_; }
  void name_server(proto::Membership& answer) const;  // and the round, for those who come again
  // Behind names that this server makes: the one before may have made the same. Empty: it is the first.
  std::string mark() const;
  std::uint32_t generation() const { return generation_; }
  const std::string& job() const { return job_; }
  const Member* of(ConnectionId connection) const;  // of a complete round
  const Member* at(int rank) const;                 // of a complete round, or appended to it
  const Member* first_absent() const;               // of a complete round alone: lost before left, then lowest rank
  // Who of a complete round was lost before all others, for so long that it does not come again; null: nobody.
  const Member* first_lost(Time now) const;
  bool at_rest(Time now) const;  // all are there, but for those that were lost too long ago to come again
  std::string describe(ConnectionId connection) const;

 private:
  void begin_generation(std::uint32_t generation);
  void check(const proto::Join& join) const;
  bool rejoin(Caller caller, const proto::Join& join, const std::string& address, Time deadline, Time now);
  void share_place(Caller caller, int rank);
  void come_again(Caller caller, const proto::Join& join, const std::string& address, Time now);
  void make_room_for(std::int64_t rank, Time now);
  void refuse_duplicate(const proto::Join& join);
  void refuse_late_comer(const proto::Join& join) const;
  void finish();
  void assign_ranks();
  void assign_nodes();
  void remove_open(ConnectionId connection);
  void welcome(Member& member, Caller caller);

  Waits& waits_;
  Replies& replies_;
  std::string job_, server_;
  int fixed_world_size_, world_size_ = -1, nodes_ = 0;  // world_size_: of this round; -1: nobody has said
  bool is_rank_0s_;
  std::chrono::milliseconds come_back_within_;
  std::function<void(const Error&)> given_up_;
  std::uint32_t generation_ = 0;
  std::optional<Error> spoiled_;  // a server of rank 0's own, to which rank 0 is still to come
  bool complete_ = false;
  bool came_back_ = false;                           // the round was complete at an earlier server
  std::map<ConnectionId, Member> open_;              // those who wait, in order of arrival
  std::map<int, ConnectionId> claimed_;              // their given ranks
  std::vector<Member> members_;                      // of a complete round, by rank, and those appended to it
  std::map<ConnectionId, int> ranks_;                // of a complete round
  std::map<std::string, ConnectionId> by_instance_;  // open round
  std::map<std::string, int> rank_of_instance_;      // of a complete round
  std::set<int> lost_, left_;
  std::deque<std::pair<Time, int>> not_back_;  // ranks that may still come again, and until when; the first one first
};

std::string who(const Member& member);  // "rank 3 (host a, pid 17)"

}  // namespace rondo::rendezvous
