// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/growths.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kFailedRemembered = 1024;  // for those who come to its exchanges later
constexpr std::size_t kMostOfReason = 4096;
constexpr std::size_t kMostOfAll = std::size_t{1} << 20;

std::string described(const proto::Join& join) { return fmt::format("host {}, pid {}", join.host(), join.pid()); }
std::string described(const Member& member) {
  return member.never_came() ? "not heard of since this server was started" : described(member.join);
}

Error asked_anew() { return {ErrorCode::aborted, "its rank 0 has asked for others to join anew"}; }

std::string gone_how(const Member& member) {
  return fmt::format(" ({}) {}{}{}", described(member), member.presence == Presence::left ? "left" : "was lost",
                     member.reason.empty() ? "" : ": ", member.reason);
}

}  // namespace

std::string joined_key(std::string_view calls_itself) { return fmt::format("rondo/joined/{}", calls_itself); }

void Growths::enlist(Caller caller, const proto::Join& join, const std::string& address, Time deadline) {
  const bool waits = std::any_of(line_.begin(), line_.end(),
                                 [&](const Recruit& recruit) { return recruit.connection == caller.connection; });
  if (waits || members_.of(caller.connection) != nullptr)
    throw Error(ErrorCode::invalid_argument, "this client has joined already");
  const WaitId wait = waits_.add({caller, deadline, WaitKind::recruit, {}});
  line_.push_back({join, address, caller.connection, wait});
  serve();
}

void Growths::check(Caller caller, const proto::Admit& request) const {
  if (members_.of(caller.connection) == nullptr) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} cannot let others join: it is no rank of job '{}'",
                                                         members_.describe(caller.connection), members_.job()));
  }
  const auto members = static_cast<std::size_t>(request.members_size());
  if (members == 0 || members + request.joiners() > kMostOfAll) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a communicator of {} ranks cannot take in {} more", members, request.joiners()));
  }
  for (int i = 0; i < request.members_size(); ++i) {
    const Member* member = members_.at(static_cast<int>(request.members(i)));
    if (member != nullptr && member->presence == Presence::alive) continue;
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank {} of the communicator that is to grow {}", i,
                            member == nullptr ? "is not one of this job" : gone_how(*member).substr(1)),
                i);
  }
}

bool Growths::is_asked_for(const proto::Admit& request, const std::vector<int>& job_ranks, std::size_t members) {
  return members == static_cast<std::size_t>(request.members_size()) && members <= job_ranks.size() &&
         std::equal(request.members().begin(), request.members().end(), job_ranks.begin(),
                    [](std::uint32_t a, int b) { return static_cast<int>(a) == b; });
}

// Whoever asks again has not heard the first answer, and will not come to what it said.
void Growths::replace_growth_of(const proto::Admit& request) {
  for (Entry growth = growths_.begin(); growth != growths_.end(); ++growth) {
    if (is_asked_for(request, growth->second.job_ranks, growth->second.members)) fail(growth, asked_anew());
  }
  std::erase_if(admissions_, [&](const Admission& one) {
    const std::vector<int> members(one.request.members().begin(), one.request.members().end());
    if (!is_asked_for(request, members, members.size())) return false;
    replies_.fail(waits_.take(one.wait).caller, asked_anew());
    return true;
  });
}

void Growths::note_asking(const proto::Admit& request) {
  constexpr std::size_t kMostAsked = 64;
  const std::vector<int> members(request.members().begin(), request.members().end());
  std::erase_if(asked_, [&](const proto::Admit& one) { return is_asked_for(one, members, members.size()); });
  asked_.push_back(request);
  if (asked_.size() > kMostAsked) asked_.pop_front();
}

void Growths::told(Caller caller, const proto::Membership& given) {
  replies_.send(caller, proto::Reply());
  const auto members = static_cast<std::size_t>(given.growth_members());
  const Entry growth = growths_.try_emplace(fmt::format("{}@{}", given.growth(), given.growth_generation())).first;
  if (!growth->second.job_ranks.empty() || growth->second.failure) return;
  growth->second.job_ranks.assign(given.job_ranks().begin(), given.job_ranks().end());
  growth->second.members = members;
  growth->second.round = members_.generation();
  const bool is_over = std::any_of(asked_.begin(), asked_.end(), [&](const proto::Admit& request) {
    return is_asked_for(request, growth->second.job_ranks, members);
  });
  if (is_over) return fail(growth, asked_anew());
  if (const auto error = loss_in(*growth)) fail(growth, *error);
}

void Growths::admit(Caller caller, const proto::Admit& request, Time deadline) {
  check(caller, request);
  replace_growth_of(request);
  note_asking(request);
  if (request.joiners() == 0) {
    refuse_other_releases(request.release());
    return take_in(caller, request,
                   std::min(line_.size(), kMostOfAll - static_cast<std::size_t>(request.members_size())));
  }
  const WaitId wait = waits_.add({caller, deadline, WaitKind::admission, {}});
  admissions_.push_back({caller, wait, request});
  serve();
}

void Growths::refuse_other_releases(const std::string& release) {
  std::erase_if(line_, [&](const Recruit& recruit) {
    if (recruit.join.release() == release) return false;
    const Caller caller = waits_.take(recruit.wait).caller;
    replies_.fail(caller,
                  Error(ErrorCode::mismatch,
                        fmt::format("{} cannot join job '{}': it runs release '{}' of rondo and the ranks there "
                                    "'{}'; use the same release everywhere",
                                    described(recruit.join), members_.job(), recruit.join.release(), release)));
    return true;
  });
}

void Growths::serve() {
  for (std::size_t next = 0; next < admissions_.size();) {
    refuse_other_releases(admissions_[next].request.release());
    if (line_.size() < admissions_[next].request.joiners()) {
      ++next;
      continue;
    }
    const Admission admission = admissions_[next];
    admissions_.erase(admissions_.begin() + static_cast<std::ptrdiff_t>(next));
    waits_.take(admission.wait);
    take_in(admission.caller, admission.request, admission.request.joiners());
  }
}

void Growths::take_in(const Caller& caller, const proto::Admit& request, std::size_t joiners) {
  if (joiners == 0) {
    proto::Reply nobody;
    nobody.mutable_membership();
    return replies_.send(caller, nobody);
  }
  const auto end = line_.begin() + static_cast<std::ptrdiff_t>(joiners);
  const std::vector<Recruit> recruits(std::make_move_iterator(line_.begin()), std::make_move_iterator(end));
  line_.erase(line_.begin(), end);
  Growth growth{.job_ranks = {request.members().begin(), request.members().end()},
                .members = static_cast<std::size_t>(request.members_size()),
                .round = members_.generation()};
  for (const Recruit& recruit : recruits)
    growth.job_ranks.push_back(members_.append(recruit.join, recruit.connection, recruit.address));
  const std::string name = fmt::format("grown.{}{}", growth.job_ranks[growth.members], members_.mark());
  proto::Reply reply;
  proto::Membership& answer = *reply.mutable_membership();
  answer.set_world_size(static_cast<std::uint32_t>(growth.job_ranks.size()));
  answer.set_generation(growth.round);
  answer.set_growth(name);
  members_.name_server(answer);
  answer.set_growth_generation(request.generation());
  answer.set_growth_members(static_cast<std::uint32_t>(growth.members));
  for (const int rank : growth.job_ranks) answer.add_job_ranks(static_cast<std::uint32_t>(rank));
  std::size_t rank = growth.members;
  growths_[fmt::format("{}@{}", name, request.generation())] = std::move(growth);
  replies_.send(caller, reply);
  for (const Recruit& recruit : recruits) {
    answer.set_rank(static_cast<std::uint32_t>(rank++));
    replies_.send(waits_.take(recruit.wait).caller, reply);
  }
}

void Growths::fail(Entry growth, const Error& error) {
  if (growth->second.failure) return;
  growth->second.failure = error;
  growth->second.job_ranks.clear();
  failed_.push_back(growth->first);
  if (failed_.size() <= kFailedRemembered) return;
  growths_.erase(failed_.front());
  failed_.pop_front();
}

void Growths::miss(Caller caller, const proto::Missing& request) {
  replies_.send(caller, proto::Reply());
  if (request.indices().empty() || request.indices(0) >= kMostOfAll) return;
  const int lost = static_cast<int>(request.indices(0));
  const Error error(ErrorCode::peer_lost,
                    fmt::format("rank {} was lost before '{}' was made, as {} says", lost, request.name(),
                                members_.describe(caller.connection)),
                    lost);
  const Entry growth = growths_.find(request.name());
  if (growth == growths_.end()) return fail_unknown(request.name(), error);
  if (request.indices(0) < growth->second.members) fail(growth, error);
}

// Who knows of it may be gone, and those who have heard of it from them wait for each other. One that was made long ago
// meets nowhere any more.
void Growths::fail_unknown(const std::string& name, const Error& error) {
  fail(growths_.try_emplace(name).first, error);
}

void Growths::give_up(Caller caller, const std::string& name, const proto::Failure& why) {
  const Member* member = members_.of(caller.connection);
  const Entry growth = growths_.find(name);
  replies_.send(caller, proto::Reply());
  if (member == nullptr) return;
  if (growth == growths_.end()) {
    const Error error = error_of(why);
    return fail_unknown(
        name, Error(error.error_code(),
                    fmt::format("{} of '{}' gave up: {:.{}}", who(*member), name, error.what(), kMostOfReason),
                    error.culprit()));
  }
  const auto& ranks = growth->second.job_ranks;
  const auto own = std::find(ranks.begin(), ranks.end(), member->join.rank());
  if (own == ranks.end()) return;
  const Error error = error_of(why);
  fail(growth, Error(error.error_code(),
                     fmt::format("rank {} ({}) of '{}' gave up: {:.{}}", own - ranks.begin(), described(member->join),
                                 name, error.what(), kMostOfReason),
                     error.culprit()));
}

void Growths::look(Caller caller, const std::string& name) {
  const Entry growth = growths_.find(name);
  if (growth != growths_.end() && growth->second.failure) throw Error(*growth->second.failure);
  replies_.send(caller, proto::Reply());
}

void Growths::expire(WaitId wait) {
  const auto recruit = std::find_if(line_.begin(), line_.end(), [&](const Recruit& r) { return r.wait == wait; });
  if (recruit != line_.end()) {
    line_.erase(recruit);
    return replies_.fail(waits_.take(wait).caller,
                         Error(ErrorCode::timeout,
                               fmt::format("no communicator of job '{}' has let this process join by the deadline; its "
                                           "ranks let others join by grow()",
                                           members_.job())));
  }
  const auto admission =
      std::find_if(admissions_.begin(), admissions_.end(), [&](const Admission& a) { return a.wait == wait; });
  const Error error(
      ErrorCode::timeout,
      fmt::format("{} of {} processes had come to join job '{}' by the deadline; the communicator goes on "
                  "without them",
                  line_.size(), admission->request.joiners(), members_.job()));
  admissions_.erase(admission);
  replies_.fail(waits_.take(wait).caller, error);
}

void Growths::gone(ConnectionId connection) {
  const auto is_its = [&](const auto& entry) {
    const bool own = waits_.at(entry.wait).caller.connection == connection;
    if (own) waits_.take(entry.wait);
    return own;
  };
  std::erase_if(line_, is_its);
  std::erase_if(admissions_, is_its);
  look_for_losses();
}

void Growths::look_for_losses() {
  for (Entry growth = growths_.begin(); growth != growths_.end(); ++growth) {
    if (const auto error = loss_in(*growth)) fail(growth, *error);
  }
}

std::optional<Error> Growths::loss_in(const Table::value_type& entry) const {
  const auto& [name, growth] = entry;
  for (std::size_t i = 0; i < growth.job_ranks.size(); ++i) {
    const Member* member = growth.round == members_.generation() ? members_.at(growth.job_ranks[i]) : nullptr;
    if (member != nullptr && member->presence == Presence::alive) continue;
    return Error(ErrorCode::peer_lost,
                 fmt::format("{} {}{} before '{}' was made", i < growth.members ? "rank" : "joining rank", i,
                             member == nullptr ? " was given up" : gone_how(*member), name),
                 static_cast<int>(i));
  }
  return std::nullopt;
}

const Growths::Growth* Growths::of_exchange(std::string_view exchange) const {
  const auto slash = exchange.rfind('/');
  const auto found = slash == exchange.npos ? growths_.end() : growths_.find(exchange.substr(0, slash));
  return found == growths_.end() ? nullptr : &found->second;
}

void Growths::completed(std::string_view exchange) {
  constexpr std::string_view kLast = "/made";
  if (!exchange.ends_with(kLast)) return;
  const auto growth = growths_.find(exchange.substr(0, exchange.size() - kLast.size()));
  if (growth == growths_.end() || growth->second.failure) return;
  note_joined(growth->second);
  growths_.erase(growth);
}

void Growths::note_joined(const Growth& growth) const {
  for (std::size_t i = growth.members; i < growth.job_ranks.size(); ++i) {
    const int job_rank = growth.job_ranks[i];
    const Member* member = members_.at(job_rank);
    if (member != nullptr && !member->join.calls_itself().empty())
      values_.keep(joined_key(member->join.calls_itself()), std::to_string(job_rank));
  }
}

}  // namespace rondo::rendezvous
