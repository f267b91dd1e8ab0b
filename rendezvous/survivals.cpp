// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/survivals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <rondo/error.hpp>

namespace rondo::rendezvous {

namespace {
constexpr std::uint32_t kMostMembers = 1U << 20;
}

std::string missed_key(int job_rank) { return fmt::format("rondo/missed/{}", job_rank); }

// Nobody who has the larger communicator has used it: a barrier of all its ranks comes first. So it is given up as soon
// as anybody has. A joiner has it only after that barrier, and is never among them.
proto::Survive Survivals::of_smaller(const proto::Survive& of_larger) {
  proto::Survive request = of_larger;
  if (of_larger.index() >= of_larger.smaller() ||
      of_larger.smaller() > static_cast<std::uint32_t>(request.members_size()))
    throw Error(ErrorCode::peer_lost, fmt::format("the members of '{}' have given it up", of_larger.growth()));
  request.set_name(of_larger.instead());
  request.mutable_members()->Truncate(static_cast<int>(of_larger.smaller()));
  request.clear_instead();
  request.clear_smaller();
  return request;
}

bool Survivals::is_given_up(const proto::Survive& request) const {
  if (request.instead().empty()) return false;
  const auto smaller = survivals_.find(request.instead());
  return smaller != survivals_.end() && smaller->second.gave_up == request.growth();
}

// It did not ask in time, so the others have gone on in the larger one.
void Survivals::check_not_gone_on(const std::string& growth, int index) const {
  for (const auto& [name, survival] : survivals_) {
    if (survival.growth != growth || survival.decided.empty()) continue;
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank {} gave '{}' up and was taken for lost, and the survivors have gone on with it",
                            index, growth),
                index);
  }
}

bool Survivals::take_back(const std::string& growth) {
  std::vector<std::pair<Wait, proto::Survive>> taken;
  for (auto& [name, survival] : survivals_) {
    if (survival.growth != growth) continue;
    for (const auto& [index, asking] : std::exchange(survival.asked, {})) {
      proto::Survive request;
      request.set_instead(survival.instead);
      request.set_smaller(static_cast<std::uint32_t>(survival.smaller));
      request.set_growth(growth);
      request.set_index(static_cast<std::uint32_t>(index));
      for (const int member : survival.members) request.add_members(static_cast<std::uint32_t>(member));
      taken.emplace_back(waits_.take(asking.second), std::move(request));
    }
  }
  bool gave_up = false;
  for (const auto& [wait, request] : taken) {
    try {
      gave_up = ask(wait.caller, of_smaller(request), wait.deadline) || gave_up;
    } catch (const Error& error) {
      replies_.fail(wait.caller, error);
    }
  }
  return gave_up;
}

void Survivals::turn_away_from_smaller(const std::string& growth) {
  for (auto& [name, survival] : survivals_) {
    if (survival.gave_up != growth || !survival.decided.empty()) continue;
    for (const auto& [index, asking] : std::exchange(survival.asked, {})) {
      const Caller caller = waits_.take(asking.second).caller;
      try {
        check_not_gone_on(growth, index);
      } catch (const Error& error) {
        replies_.fail(caller, error);
      }
    }
  }
}

// True: what take_back() says.
bool Survivals::note_doubt(Survival& survival, const proto::Survive& request) {
  if (request.growth().empty()) return false;
  if (request.instead().empty()) {
    survival.gave_up = request.growth();
    return take_back(request.growth());
  }
  survival.growth = request.growth();
  survival.instead = request.instead();
  survival.smaller = request.smaller();
  return false;
}

bool Survivals::ask(Caller caller, const proto::Survive& request, Time deadline) {
  if (is_given_up(request)) return ask(caller, of_smaller(request), deadline);
  const std::vector<int> members(request.members().begin(), request.members().end());
  const int index = static_cast<int>(request.index());
  if (request.index() >= members.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("communicator '{}' of {} ranks has no rank {}", request.name(),
                                                         members.size(), request.index()));
  }
  Survival& survival = survivals_[request.name()];
  if (survival.members.empty()) survival.members = members;
  if (survival.members != members) {
    throw Error(ErrorCode::mismatch,
                fmt::format("the survivors of '{}' do not agree who its members were", request.name()));
  }
  if (!survival.decided.empty()) {
    reply_decided(survival, request.name(), index, caller);
    return false;
  }
  if (!request.growth().empty() && request.instead().empty()) check_not_gone_on(request.growth(), index);
  if (survival.asked.contains(index)) {
    throw Error(ErrorCode::mismatch, fmt::format("rank {} of '{}' asks twice who has survived", index, request.name()));
  }
  survival.missing.erase(index);  // it was away for a moment
  survival.asked[index] = {caller.connection, waits_.add({caller, deadline, WaitKind::survivors, request.name()})};
  const bool others_gave_up = note_doubt(survival, request);
  if (survival.decided.empty()) settle(survival);
  return give_up_others(request.name(), members, index) || others_gave_up;
}

// Whoever could not meet the survivors asks again under another name, and they must not wait for it.
bool Survivals::give_up_others(const std::string& name, const std::vector<int>& members, int index) {
  bool gave_up = false;
  for (auto& [other, survival] : survivals_) {
    if (other == name || survival.members != members) continue;
    if (std::binary_search(survival.decided.begin(), survival.decided.end(), index))
      gave_up = survival.given_up.insert(index).second || gave_up;
  }
  for (auto& [other, survival] : survivals_)
    if (gave_up && survival.decided.empty()) settle(survival);
  return gave_up;
}

void Survivals::reply_decided(const Survival& survival, const std::string& name, int index, Caller caller) {
  const bool listed = std::binary_search(survival.decided.begin(), survival.decided.end(), index);
  if (listed) return replies_.send(caller, list_body(survival));
  replies_.fail(
      caller,
      Error(ErrorCode::peer_lost,
            fmt::format("rank {} of '{}' was taken for lost, and the survivors have gone on without it", index, name),
            index));
}

// Those who were answered have gone on and do not ask again.
void Survivals::told(Caller caller, const proto::Told& told) {
  const std::string& name = told.survivors().name();
  const auto& decided = told.decided();
  if (!std::is_sorted(decided.begin(), decided.end()) || decided.empty() ||
      decided[decided.size() - 1] >= static_cast<std::uint32_t>(told.survivors().members_size()))
    throw Error(ErrorCode::invalid_argument, fmt::format("'{}' cannot have been survived by those", name));
  Survival& survival = survivals_[name];
  const std::vector<int> members(told.survivors().members().begin(), told.survivors().members().end());
  if (survival.members.empty()) survival.members = members;
  if (survival.decided.empty() && survival.members == members) {
    survival.decided.assign(decided.begin(), decided.end());
    survival.number = ++decisions_;
    for (const auto& [index, asking] : std::exchange(survival.asked, {}))
      reply_decided(survival, name, index, waits_.take(asking.second).caller);
    note_doubt(survival, told.survivors());
    if (!survival.growth.empty()) turn_away_from_smaller(survival.growth);
  }
  replies_.send(caller, proto::Reply());
}

// It may be told before anybody asks.
void Survivals::miss(Caller caller, const proto::Missing& request) {
  for (const std::uint32_t index : request.indices()) {
    if (index >= kMostMembers)
      throw Error(ErrorCode::invalid_argument, fmt::format("communicator '{}' has no rank {}", request.name(), index));
  }
  Survival& survival = survivals_[request.name()];
  for (const std::uint32_t index : request.indices()) survival.missing.insert(static_cast<int>(index));
  replies_.send(caller, proto::Reply());
  if (survival.decided.empty()) settle(survival);
}

bool Survivals::lives(const Survival& survival, int index) const {
  const Member* member = members_.at(survival.members[static_cast<std::size_t>(index)]);
  return member != nullptr && member->presence == Presence::alive;
}

// The failed communicator came of survivors, the latest of those ranks, of whom this one had given up before it had it.
bool Survivals::never_made(const Survival& survival, int index) const {
  const Survival* made_by = nullptr;
  for (const auto& [name, other] : survivals_) {
    const auto is_it = [&members = other.members](int listed, int member) {
      return members[static_cast<std::size_t>(listed)] == member;
    };
    if (other.decided.empty() || !std::ranges::equal(other.decided, survival.members, is_it)) continue;
    if (made_by == nullptr || made_by->number < other.number) made_by = &other;
  }
  return made_by != nullptr && made_by->given_up.contains(made_by->decided[static_cast<std::size_t>(index)]);
}

std::vector<int> Survivals::awaited(const Survival& survival) const {
  std::vector<int> indices;
  for (int i = 0; i < static_cast<int>(survival.members.size()); ++i) {
    if (lives(survival, i) && !survival.asked.contains(i) && !survival.missing.contains(i) && !never_made(survival, i))
      indices.push_back(i);
  }
  return indices;
}

SharedBody Survivals::list_body(const Survival& survival) {
  proto::Reply reply;
  for (const int index : survival.decided) reply.add_survivors(static_cast<std::uint32_t>(index));
  reply.set_gave_up(survival.gave_up);
  return Replies::body_of(reply);
}

void Survivals::answer(Survival& survival, const SharedBody& body) {
  for (const auto& [index, asking] : survival.asked) replies_.send(waits_.take(asking.second).caller, body);
  survival.asked.clear();
}

// Who lives may ask until it is decided.
void Survivals::note_missed(const Survival& survival) {
  const bool decides = awaited(survival).empty();
  for (int i = 0; i < static_cast<int>(survival.members.size()); ++i) {
    if (survival.asked.contains(i) || (lives(survival, i) && !decides)) continue;
    values_.keep(missed_key(survival.members[static_cast<std::size_t>(i)]), "");
  }
}

void Survivals::settle(Survival& survival) {
  if (survival.asked.empty()) return;
  note_missed(survival);
  if (!awaited(survival).empty()) return;
  for (const auto& [index, asking] : survival.asked) survival.decided.push_back(index);
  survival.number = ++decisions_;
  answer(survival, list_body(survival));
  for (int i = 0; i < static_cast<int>(survival.members.size()); ++i)
    if (!std::binary_search(survival.decided.begin(), survival.decided.end(), i)) turn_away(survival, i);
}

// Who was left out may ask who has survived another communicator, of those who have gone on.
void Survivals::turn_away(const Survival& decided, int index) {
  const int job_rank = decided.members[static_cast<std::size_t>(index)];
  for (auto& [name, survival] : survivals_) {
    const auto own = std::find(survival.members.begin(), survival.members.end(), job_rank);
    const auto asking = survival.asked.find(static_cast<int>(own - survival.members.begin()));
    if (own == survival.members.end() || asking == survival.asked.end()) continue;
    const WaitId wait = asking->second.second;
    const int there = asking->first;
    survival.asked.erase(asking);
    replies_.fail(waits_.take(wait).caller,
                  Error(ErrorCode::peer_lost,
                        fmt::format("the survivors of '{}' have gone on without rank {}", name, there), there));
  }
}

void Survivals::expire(const std::string& name) {
  const auto found = survivals_.find(name);
  const std::vector<int> missing = awaited(found->second);
  const Member* first = members_.at(found->second.members[static_cast<std::size_t>(missing.front())]);
  const Error error(ErrorCode::timeout,
                    fmt::format("ranks {} of '{}' live but had not asked who survived by the deadline; the first is {}",
                                list_of(missing), name, who(*first)),
                    missing.front());
  answer(found->second, Replies::body_of(error));
  survivals_.erase(found);
}

void Survivals::give_up(const Error& error) {
  const SharedBody body = Replies::body_of(error);
  for (auto& [name, survival] : survivals_) answer(survival, body);
  survivals_.clear();
}

std::optional<const Member*> Survivals::first_absent(std::string_view exchange, std::size_t participants) const {
  const auto slash = exchange.rfind('/');
  const auto found = slash == exchange.npos ? survivals_.end() : survivals_.find(exchange.substr(0, slash));
  if (found == survivals_.end() || found->second.decided.size() != participants) return std::nullopt;
  for (const int index : found->second.decided) {
    const Member* member = members_.at(found->second.members[static_cast<std::size_t>(index)]);
    const bool gone = found->second.missing.contains(index) || found->second.given_up.contains(index) ||
                      (member != nullptr && member->presence != Presence::alive);
    if (member != nullptr && gone) return member;
  }
  return nullptr;
}

bool Survivals::has_given_up(std::string_view exchange, const Member& member) const {
  const auto found = survivals_.find(exchange.substr(0, exchange.rfind('/')));
  if (found == survivals_.end()) return false;
  const auto& members = found->second.members;
  const auto own = std::find(members.begin(), members.end(), member.join.rank());
  return found->second.given_up.contains(static_cast<int>(own - members.begin()));
}

void Survivals::gone(ConnectionId connection) {
  for (auto& [name, survival] : survivals_) {
    for (auto asking = survival.asked.begin(); asking != survival.asked.end();) {
      if (asking->second.first == connection) {
        waits_.take(asking->second.second);
        asking = survival.asked.erase(asking);
      } else {
        ++asking;
      }
    }
  }
  look_for_losses();
}

void Survivals::look_for_losses() {
  for (auto& [name, survival] : survivals_)
    if (survival.decided.empty()) settle(survival);
}

}  // namespace rondo::rendezvous
