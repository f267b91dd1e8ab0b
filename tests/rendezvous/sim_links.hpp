// SPDX-License-Identifier: Apache-2.0
// What ranks of a communicator say to each other without the server: rounds in which all come together, and that a rank
// is lost, or has given the communicator up, of which every other one hears. Where a rank dies in the midst of a round,
// some hear all of it and others of the death.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rondo/error.hpp>

#include "tests/rendezvous/simulation.hpp"

namespace rondo::rendezvous::test {

class SimLinks {
 public:
  using Values = std::vector<std::string>;  // by rank
  using Done = std::function<void(std::variant<Values, Error>)>;
  explicit SimLinks(Network& network) : network_(network) {}

  void meet(const std::string& group_name, const std::vector<int>& members, int round, int rank, std::string value,
            Done done) {
    Group& group = groups_[group_name];
    group.members = members;
    for (const int member : members)
      if (gone_.contains(member) && !group.lost) group.lost = member;
    if (group.lost) return answer(done, lost(group_name, *group.lost));
    Round& here = group.rounds[round];
    here.values[rank] = std::move(value);
    here.waiting.push_back(std::move(done));
    if (here.waiting.size() < members.size()) return;
    Values values;
    for (auto& [from, said] : here.values) values.push_back(said);
    for (const Done& one : here.waiting) answer_unless_one_dies(group_name, one, values);
    group.rounds.erase(round);
  }
  // Its process has ended, or does nothing any more; its peers hear of it a little later.
  void lose(int job_rank) {
    dying_.insert(job_rank);
    network_.after(milliseconds(network_.draw(1, 50)), [this, job_rank] {
      gone_.insert(job_rank);
      for (auto& [name, group] : groups_)
        if (std::ranges::find(group.members, job_rank) != group.members.end()) fail(name, job_rank);
    });
  }
  // Its process has ended well, as its host sees.
  void end(int job_rank) { ended_.insert(job_rank); }
  void fail(const std::string& group_name, int job_rank) {
    Group& group = groups_[group_name];
    if (group.lost) return;
    group.lost = job_rank;
    for (auto& [number, round] : group.rounds)
      for (const Done& done : round.waiting) answer(done, lost(group_name, job_rank));
    group.rounds.clear();
  }
  // It lives and will not ask who has survived the group, which may have to find out.
  void give_up(const std::string& group_name, int job_rank) {
    groups_[group_name].given_up.insert(job_rank);
    fail(group_name, job_rank);
  }
  bool failed(const std::string& group_name) const {
    const auto group = groups_.find(group_name);
    return group != groups_.end() && group->second.lost.has_value();
  }
  // It connects with the others that have come, and those who come with it: some take their time.
  void come(const std::string& group_name, int job_rank) {
    Group& group = groups_[group_name];
    for (const int other : group.come) {
      const auto takes = network_.draw(0, 3) == 0 ? network_.draw(0, 400) : network_.draw(0, 5);
      network_.after(milliseconds(takes), [this, group_name, pair = std::minmax({other, job_rank})] {
        if (!dying_.contains(pair.first) && !dying_.contains(pair.second)) groups_[group_name].connected.insert(pair);
      });
    }
    group.come.insert(job_rank);
  }
  bool has_all(const std::string& group_name, int job_rank, const std::vector<int>& members) const {
    const Group& group = groups_.at(group_name);
    return std::ranges::all_of(members, [&](int other) {
      return other == job_rank || group.connected.contains(std::minmax({other, job_rank}));
    });
  }
  // It goes on in another one.
  void leave(const std::string& group_name, int job_rank) { groups_[group_name].left.insert(job_rank); }
  // Its connections in the group tell of its end, or the host that both are on; or it has given the group up.
  bool is_gone(const std::string& group_name, int job_rank, bool neighbour) const {
    const auto group = groups_.find(group_name);
    const bool left = group != groups_.end() && group->second.left.contains(job_rank);
    if (group != groups_.end() && group->second.given_up.contains(job_rank)) return true;
    return (gone_.contains(job_rank) && (neighbour || !left)) || (ended_.contains(job_rank) && neighbour);
  }

 private:
  struct Round {
    std::map<int, std::string> values{};
    std::vector<Done> waiting{};
  };
  struct Group {
    std::vector<int> members{};
    std::optional<int> lost{};
    std::set<int> left{}, given_up{}, come{};
    std::set<std::pair<int, int>> connected{};
    std::map<int, Round> rounds{};
  };
  static Error lost(const std::string& group_name, int job_rank) {
    return {ErrorCode::peer_lost, "rank " + std::to_string(job_rank) + " of the job is lost to " + group_name};
  }
  void answer(const Done& done, std::variant<Values, Error> outcome) {
    network_.after(milliseconds(network_.draw(0, 2)), [done, outcome = std::move(outcome)] { done(outcome); });
  }

  void answer_unless_one_dies(const std::string& group_name, const Done& done, const Values& values) {
    network_.after(milliseconds(network_.draw(0, 2)), [this, group_name, done, values] {
      const auto& members = groups_[group_name].members;
      const auto dying = std::ranges::find_if(members, [this](int member) { return dying_.contains(member); });
      if (dying == members.end() || network_.draw(0, 1) == 0) return done(values);
      const int job_rank = *dying;
      fail(group_name, job_rank);
      done(lost(group_name, job_rank));
    });
  }

  Network& network_;
  std::map<std::string, Group> groups_;
  std::set<int> gone_, dying_, ended_;  // of whose death all know; who has died; who has gone all the way
};

}  // namespace rondo::rendezvous::test
