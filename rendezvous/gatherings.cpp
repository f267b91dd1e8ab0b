// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/gatherings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"

namespace rondo::rendezvous {
namespace {

constexpr std::uint32_t kMaxParticipants = 1U << 20;

Error given_up_error(const Member& member, const std::string& name) {
  return {ErrorCode::peer_lost, fmt::format("{} has given up '{}', and asks anew who has survived", who(member), name),
          member.join.rank()};
}

Error absent_error(const Member& member, const std::string& name) {
  const char* how = member.presence == Presence::left ? "left" : "was lost";
  return {ErrorCode::peer_lost,
          fmt::format("{} {}{}{} before everybody had come to '{}'", who(member), how,
                      member.reason.empty() ? "" : ": ", member.reason, name),
          member.join.rank()};
}

}  // namespace

void Gatherings::check(const Gathering& gathering, Caller caller, const proto::Gather& gather, bool with_values) const {
  const std::string& name = gather.name();
  if (gather.participants() == 0 || gather.participants() > kMaxParticipants ||
      gather.index() >= gather.participants()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' cannot have participant {} of {}", name, gather.index(), gather.participants()));
  }
  if (gathering.arrived.empty()) return;
  const auto& [first, arrival] = *gathering.arrived.begin();
  if (gathering.participants != gather.participants() || gathering.with_values != with_values) {
    throw Error(ErrorCode::mismatch,
                fmt::format("'{}' is {} of {} for {} and {} of {} for {}; all must agree", name,
                            gathering.with_values ? "an exchange" : "a barrier", gathering.participants,
                            members_.describe(arrival.caller.connection), with_values ? "an exchange" : "a barrier",
                            gather.participants(), members_.describe(caller.connection)));
  }
  const auto same = gathering.arrived.find(gather.index());
  if (same != gathering.arrived.end()) {
    throw Error(ErrorCode::mismatch,
                fmt::format("participant {} of '{}' has come already: {}, and again {}", gather.index(), name,
                            members_.describe(same->second.caller.connection), members_.describe(caller.connection)));
  }
}

std::optional<Error> Gatherings::obstacle_to(const Gathering& gathering, const std::string& name) const {
  if (const Growths::Growth* growth = growths_.of_exchange(name)) return growth->failure;
  const Member* absent = nullptr;
  if (const auto survivor = survivals_.first_absent(name, gathering.participants)) {
    absent = *survivor;
    if (absent != nullptr && survivals_.has_given_up(name, *absent)) return given_up_error(*absent, name);
  } else if (gathering.of_members && static_cast<int>(gathering.participants) == members_.world_size()) {
    absent = members_.first_absent();
  }
  if (absent == nullptr) return std::nullopt;
  return absent_error(*absent, name);
}

Gatherings::Entry Gatherings::place_for(Caller caller, const proto::Gather& gather, bool with_values) {
  const Entry place = gatherings_.try_emplace(gather.name()).first;
  Gathering& gathering = place->second;
  try {
    check(gathering, caller, gather, with_values);
  } catch (...) {
    if (gathering.arrived.empty()) gatherings_.erase(place);
    throw;
  }
  gathering.participants = gather.participants();
  gathering.with_values = with_values;
  return place;
}

void Gatherings::arrive(Caller caller, const proto::Gather& gather, bool with_values, Time deadline) {
  if (members_.of(caller.connection) != nullptr)
    if (const auto failed = unheard_.take(gather.name(), gather.index(), gather.participants())) throw Error(*failed);
  const Entry place = place_for(caller, gather, with_values);
  add(place, caller, gather, waits_.add({caller, deadline, WaitKind::gather, gather.name()}));
}

// Where another has come in its place, nobody waits for what it says.
void Gatherings::told(Caller caller, const proto::Gather& gather, bool with_values) {
  try {
    add(place_for(caller, gather, with_values), caller, gather, 0);
  } catch (const Error& error) {
    log::debug("rendezvous: {}", error.what());
  }
  replies_.send(caller, proto::Reply());
}

void Gatherings::add(Entry place, Caller caller, const proto::Gather& gather, WaitId wait) {
  Gathering& gathering = place->second;
  gathering.of_members = gathering.of_members || members_.of(caller.connection) != nullptr;
  gathering.bytes += gather.value().size() + 8;
  gathering.arrived.emplace(gather.index(), Arrival{caller, wait, gather.value()});
  if (const auto obstacle = obstacle_to(gathering, gather.name())) return fail(place, *obstacle);
  if (gathering.bytes > kMaxReplyBytes - 4096) {
    return answer(place, Replies::body_of(Error(
                             ErrorCode::unsupported,
                             fmt::format("exchange '{}' of {} participants carries more than {} bytes; exchange less",
                                         gather.name(), gather.participants(), kMaxReplyBytes - 4096))));
  }
  if (gathering.arrived.size() < gathering.participants) return;
  proto::Reply reply;
  if (gathering.with_values) {
    for (auto& [index, arrival] : gathering.arrived) reply.add_values(std::move(arrival.value));
  }
  answer(place, Replies::body_of(reply));
  growths_.completed(gather.name());
}

void Gatherings::answer(Entry place, const SharedBody& body) {
  const auto gathering = gatherings_.extract(place);
  for (const auto& [index, arrival] : gathering.mapped().arrived) {
    if (arrival.wait == 0) continue;
    waits_.take(arrival.wait);
    replies_.send(arrival.caller, body);
  }
}

void Gatherings::fail(Entry place, const Error& error) {
  const Gathering& gathering = place->second;
  if (gathering.of_members && growths_.of_exchange(place->first) == nullptr) {  // which remembers by itself
    std::vector<bool> heard(gathering.participants);
    for (const auto& [index, arrival] : gathering.arrived) heard[index] = true;
    unheard_.note(place->first, error, std::move(heard));
  }
  answer(place, Replies::body_of(error));
}

void Gatherings::expire(const std::string& name) {
  const Entry place = gatherings_.find(name);
  const Gathering& gathering = place->second;
  std::vector<int> missing;
  for (std::uint32_t index = 0; index < gathering.participants; ++index) {
    if (!gathering.arrived.contains(index)) missing.push_back(static_cast<int>(index));
  }
  answer(place, Replies::body_of(Error(ErrorCode::timeout,
                                       fmt::format("{} of {} had not come to '{}' by the deadline: {}", missing.size(),
                                                   gathering.participants, name, list_of(missing)),
                                       missing.front())));
}

void Gatherings::give_up(const Error& error) {
  const SharedBody body = Replies::body_of(error);
  for (Entry place = gatherings_.begin(); place != gatherings_.end();) {
    const Entry here = place++;
    if (here->second.of_members) answer(here, body);
  }
  unheard_.clear();
}

void Gatherings::fail_hopeless() {
  for (Entry place = gatherings_.begin(); place != gatherings_.end();) {
    const Entry here = place++;
    if (const auto obstacle = obstacle_to(here->second, here->first)) fail(here, *obstacle);
  }
}

void Gatherings::gone(ConnectionId connection, const std::string& description, const std::string& reason) {
  fail_hopeless();
  for (Entry place = gatherings_.begin(); place != gatherings_.end();) {
    const Entry here = place++;
    const auto& arrived = here->second.arrived;
    const auto contributor = std::find_if(arrived.begin(), arrived.end(), [&](const auto& entry) {
      return entry.second.caller.connection == connection;
    });
    if (contributor == arrived.end()) continue;
    fail(here, Error(ErrorCode::peer_lost,
                     fmt::format("{} was lost{}{} before everybody had come to '{}'", description,
                                 reason.empty() ? "" : ": ", reason, here->first),
                     static_cast<int>(contributor->first)));
  }
}

}  // namespace rondo::rendezvous
