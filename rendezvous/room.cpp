// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/room.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/base/duration.hpp"

namespace rondo::rendezvous {
namespace {

void check_text(const std::string& text, const char* what, bool may_be_empty) {
  if (text.size() > kMaxNameBytes || (text.empty() && !may_be_empty)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("a {} must have {} to {} bytes, this one has {}", what,
                                                         may_be_empty ? 0 : 1, kMaxNameBytes, text.size()));
  }
}
const std::string& key(const std::string& text) {
  check_text(text, "key", false);
  return text;
}
const std::string& value(const std::string& text) {
  if (text.size() <= kMaxValueBytes) return text;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("a value must have at most {} bytes, this one has {}", kMaxValueBytes, text.size()));
}
const proto::Gather& checked(const proto::Gather& gather) {
  check_text(gather.name(), "name", false);
  value(gather.value());
  return gather;
}
const proto::Survive& checked(const proto::Survive& survive) {
  key(survive.name());
  check_text(survive.growth(), "growth", true);
  check_text(survive.instead(), "name", true);
  return survive;
}
const proto::Join& checked(const proto::Join& join) {
  check_text(join.node(), "node name", true);
  check_text(join.host(), "host name", true);
  check_text(join.master_address(), "master address", true);
  check_text(join.instance(), "client instance", true);
  check_text(join.release(), "release", true);
  check_text(join.calls_itself(), "name of a joining process", true);
  return join;
}

// For those who make connections with it, and know no better.
Error loss_of(const Member& member) {
  return {
      ErrorCode::peer_lost,
      fmt::format("{} was lost{}{} while the ranks met", who(member), member.reason.empty() ? "" : ": ", member.reason),
      member.join.rank()};
}

}  // namespace

Room::Room(const RoomOptions& options, Replies& replies)
    : replies_(replies),
      values_(waits_, replies, options.store_bytes),
      members_(waits_, replies, options,
               [this](const Error& error) {
                 survivals_.give_up(error);
                 gatherings_.give_up(error);
               }),
      survivals_(waits_, replies, members_, values_),
      growths_(waits_, replies, members_, values_),
      gatherings_(waits_, replies, members_, survivals_, growths_) {
  if (!options.starter.empty()) values_.keep(kStarterKey, options.starter);
}

void Room::request(Caller caller, const proto::Request& request, const std::string& address, Time now) {
  const auto longest = static_cast<std::uint64_t>(kForEver.count());
  const Time deadline = now + std::chrono::milliseconds(std::min(request.timeout_ms(), longest));
  try {
    dispatch(caller, request, address, deadline, now);
  } catch (const Error& error) {
    replies_.fail(caller, error);
  }
}

void Room::dispatch(Caller caller, const proto::Request& request, const std::string& address, Time deadline, Time now) {
  using Operation = proto::Request::OperationCase;
  switch (request.operation_case()) {
    case Operation::kJoin:
      if (request.join().enlists() && !request.join().again())
        return growths_.enlist(caller, checked(request.join()), address, deadline);
      return members_.join(caller, checked(request.join()), address, deadline, now);
    case Operation::kSet:
      key(request.set().key());
      value(request.set().value());
      return values_.set(caller, request.set());
    case Operation::kGet:
      return values_.get(caller, key(request.get().key()), deadline);
    case Operation::kTryGet:
      return values_.try_get(caller, key(request.try_get().key()));
    case Operation::kAdd:
      key(request.add().key());
      return values_.add(caller, request.add());
    case Operation::kCompareAndSet:
      key(request.compare_and_set().key());
      value(request.compare_and_set().desired());
      return values_.compare_and_set(caller, request.compare_and_set());
    case Operation::kTold:
      return take_told(caller, request.told(), now);
    case Operation::kErase:
      return values_.erase(caller, key(request.erase().key()));
    case Operation::kExchange:
      return gatherings_.arrive(caller, checked(request.exchange()), true, deadline);
    case Operation::kBarrier:
      return gatherings_.arrive(caller, checked(request.barrier()), false, deadline);
    case Operation::kSurvivors:
      members_.expect(checked(request.survivors()).members(), now);
      if (survivals_.ask(caller, request.survivors(), deadline)) gatherings_.fail_hopeless();
      return;
    case Operation::kMissing:
      key(request.missing().name());
      if (request.missing().growth())
        growths_.miss(caller, request.missing());
      else
        survivals_.miss(caller, request.missing());
      return gatherings_.fail_hopeless();
    case Operation::kAdmit:
      check_text(request.admit().release(), "release", true);
      members_.expect(request.admit().members(), now);
      growths_.admit(caller, request.admit(), deadline);
      return gatherings_.fail_hopeless();
    case Operation::kGiveUp:
      growths_.give_up(caller, key(request.give_up().growth()), request.give_up().why());
      return gatherings_.fail_hopeless();
    case Operation::kGrowth:
      return growths_.look(caller, key(request.growth().key()));
    case Operation::kLoss:
      if (const Member* lost = members_.first_lost(now)) throw loss_of(*lost);
      return replies_.send(caller, proto::Reply());
    case Operation::kHeartbeat:
    case Operation::kLeave:
      return;  // the connection's business
    case Operation::OPERATION_NOT_SET:
      break;
  }
  throw Error(ErrorCode::unsupported, "the server does not know this request; use the same release on both sides");
}

void Room::take_told(Caller caller, const proto::Told& told, Time now) {
  if (told.has_exchange()) return gatherings_.told(caller, checked(told.exchange()), true);
  if (told.has_barrier()) return gatherings_.told(caller, checked(told.barrier()), false);
  if (told.has_growth()) {
    members_.expect(told.growth().job_ranks(), now);
    growths_.told(caller, told.growth());
    return gatherings_.fail_hopeless();
  }
  if (told.has_survivors()) {
    members_.expect(checked(told.survivors()).members(), now);
    survivals_.told(caller, told);
    return gatherings_.fail_hopeless();
  }
  key(told.key());
  value(told.value());
  values_.told(caller, told);
}

void Room::gone(ConnectionId connection, Presence how, const std::string& reason, Time now) {
  const std::string description = members_.describe(connection);
  survivals_.gone(connection);
  members_.gone(connection, how, reason, now);
  growths_.gone(connection);
  gatherings_.gone(connection, description, reason);
  survivals_.gone(connection);  // again: now it is awaited no more
  for (const WaitId wait : waits_.of(connection)) values_.cancel(wait);
}

void Room::expire(WaitId wait) {
  switch (waits_.at(wait).kind) {
    case WaitKind::key:
      return values_.expire(wait);
    case WaitKind::gather:
      return gatherings_.expire(std::string(waits_.at(wait).name));
    case WaitKind::join:
      return members_.expire();
    case WaitKind::survivors:
      return survivals_.expire(std::string(waits_.at(wait).name));
    case WaitKind::recruit:
    case WaitKind::admission:
      return growths_.expire(wait);
  }
}

std::optional<Time> Room::next_timer() const {
  const auto deadline = waits_.next_deadline(), absence = members_.next_timer();
  if (!deadline || !absence) return deadline ? deadline : absence;
  return std::min(*deadline, *absence);
}

void Room::tick(Time now) {
  if (members_.tick(now)) {
    survivals_.look_for_losses();
    growths_.look_for_losses();
    gatherings_.fail_hopeless();
  }
  while (const auto wait = waits_.expired(now)) expire(*wait);
}

}  // namespace rondo::rendezvous
