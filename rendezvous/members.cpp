// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/members.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"

namespace rondo::rendezvous {
namespace {

constexpr int kMaxWorldSize = 1 << 20;

// A client whose connection broke connects again within some milliseconds, and tries seven times in so long.
constexpr std::chrono::milliseconds kComesAgainWithin{750};

std::string asking(const proto::Join& join) {
  return join.rank() >= 0 ? fmt::format("rank {}", join.rank()) : std::string("a rank without number");
}
void require(bool holds, ErrorCode code, const std::string& sentence, int culprit = -1) {
  if (!holds) throw Error(code, sentence, culprit);
}

}  // namespace

std::string who(const Member& member) {
  if (member.never_came()) return fmt::format("{} (not heard of since this server was started)", asking(member.join));
  return fmt::format("{} (host {}, pid {})", asking(member.join), member.join.host(), member.join.pid());
}

std::string list_of(const std::vector<int>& numbers) {
  constexpr std::size_t kMostRanges = 16;
  std::string text;
  std::size_t ranges = 0, i = 0;
  for (; i < numbers.size() && ranges < kMostRanges; ++ranges) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return i < numbers.size() ? fmt::format("{} and {} more", text, numbers.size() - i) : text;
}

void Members::begin_generation(std::uint32_t generation) {
  fail_round(Error(ErrorCode::aborted, fmt::format("generation {} of job '{}' has begun while this rank was joining "
                                                   "generation {}",
                                                   generation, job_, generation_)));
  members_.clear();
  ranks_.clear();
  rank_of_instance_.clear();
  lost_.clear();
  left_.clear();
  not_back_.clear();
  complete_ = came_back_ = false;
  spoiled_.reset();
  world_size_ = fixed_world_size_;
  generation_ = generation;
  given_up_(Error(
      ErrorCode::aborted,
      fmt::format("generation {} of job '{}' has begun, and this rank is of one that was given up", generation, job_)));
}

void Members::check(const proto::Join& join) const {
  const bool begins = join.generation() > generation_;  // another generation, which may be of another size
  const int size = fixed_world_size_ > 0 ? fixed_world_size_ : begins ? -1 : world_size_;
  const std::string from_there =
      fmt::format("{} from host {}, pid {} cannot join job '{}'", asking(join), join.host(), join.pid(), job_);
  require(join.generation() >= generation_, ErrorCode::aborted,
          fmt::format("{}: it comes with generation {}, the job is at {}; it belongs to a run that was given up",
                      from_there, join.generation(), generation_));
  require(join.world_size() <= 0 || size <= 0 || join.world_size() == size, ErrorCode::mismatch,
          fmt::format("{}: wrong world size, it says {} and the job has {}; start all ranks with the same", from_there,
                      join.world_size(), size));
  const int world = size > 0 ? size : join.world_size();
  require(world > 0 && world <= kMaxWorldSize, ErrorCode::invalid_argument,
          fmt::format("{}: nobody has said a world size between 1 and {}", from_there, kMaxWorldSize));
  const bool joined_later = join.again() && join.enlists();
  require(join.rank() >= -1 && (join.rank() < world || joined_later), ErrorCode::invalid_argument,
          fmt::format("{}: ranks of a world of {} are 0 to {}", from_there, world, world - 1));
}

// Nobody can tell whose rank the others are to meet, so the round fails for all who wait, and for the rank 0 that
// serves and comes behind them: who claimed the rank twice has gone by then.
void Members::refuse_duplicate(const proto::Join& join) {
  if (complete_) refuse_late_comer(join);
  const auto claim = claimed_.find(join.rank());
  if (claim == claimed_.end()) return;
  const proto::Join& first = open_.at(claim->second).join;
  const Error error(ErrorCode::mismatch,
                    fmt::format("duplicate rank: two processes claim rank {} of job '{}', host {}, pid {} and host {}, "
                                "pid {}; start every rank once, and give each of several jobs a meeting place or a "
                                "name (RONDO_JOB) of its own",
                                join.rank(), job_, first.host(), first.pid(), join.host(), join.pid()),
                    join.rank());
  if (is_rank_0s_ && !claimed_.contains(0)) spoiled_ = error;
  fail_round(error);
  throw error;
}

void Members::refuse_late_comer(const proto::Join& join) const {
  require(join.rank() >= 0, ErrorCode::mismatch,
          fmt::format("duplicate rank: all {} ranks of job '{}' have joined, so host {}, pid {} is one too many",
                      world_size_, job_, join.host(), join.pid()));
  const Member& first = members_[static_cast<std::size_t>(join.rank())];
  const bool lost = first.presence == Presence::lost, gone = first.presence != Presence::alive;
  require(
      first.connections > 0 || gone, ErrorCode::mismatch,
      fmt::format("duplicate rank: {} from host {}, pid {} cannot join job '{}', which was there before this server "
                  "was started, and whose rank {} may come back; restart all ranks, or start this one elsewhere",
                  asking(join), join.host(), join.pid(), job_, join.rank()),
      join.rank());
  log::warn("rendezvous: host {}, pid {} wanted to be {} of job '{}', which is complete; two jobs may share its place",
            join.host(), join.pid(), asking(join), job_);
  throw Error(
      ErrorCode::mismatch,
      fmt::format("duplicate rank: {} from host {}, pid {} cannot join job '{}', because host {}, pid {} {} it; "
                  "{}, and give each of several jobs a meeting place or a name (RONDO_JOB) of its own",
                  asking(join), join.host(), join.pid(), job_, first.join.host(), first.join.pid(),
                  lost   ? "was lost with"
                  : gone ? "has left with"
                         : "holds",
                  gone ? "restart all ranks" : "start every rank once"),
      join.rank());
}

void Members::join(Caller caller, const proto::Join& join, const std::string& address, Time deadline, Time now) {
  require(!open_.contains(caller.connection) && !ranks_.contains(caller.connection), ErrorCode::invalid_argument,
          "this client has joined already");
  check(join);
  if (join.again()) return come_again(caller, join, address, now);
  if (join.generation() > generation_) begin_generation(join.generation());
  if (rejoin(caller, join, address, deadline, now)) return;
  if (spoiled_) throw Error(*spoiled_);
  refuse_duplicate(join);
  if (world_size_ <= 0) world_size_ = fixed_world_size_ > 0 ? fixed_world_size_ : join.world_size();
  Member member{.join = join, .connection = caller.connection, .address = address};
  member.wait = waits_.add({caller, deadline, WaitKind::join, {}});
  if (join.rank() >= 0) claimed_[join.rank()] = caller.connection;
  if (!join.instance().empty()) by_instance_[join.instance()] = caller.connection;
  open_.emplace(caller.connection, std::move(member));
  if (static_cast<int>(open_.size()) == world_size_) finish();
}

// A member of this job at an earlier server, which has ended. The first one brings the whole job back; whom nobody has
// heard of yet counts as alive for a while, or until its peers say that it is missing.
void Members::come_again(Caller caller, const proto::Join& join, const std::string& address, Time now) {
  const std::string from_there =
      fmt::format("{} from host {}, pid {} cannot come back to job '{}'", asking(join), join.host(), join.pid(), job_);
  require(join.rank() >= 0 && !join.instance().empty(), ErrorCode::invalid_argument, from_there + " without its name");
  if (!complete_) {
    require(open_.empty(), ErrorCode::mismatch, from_there + ": another one begins there");
    generation_ = join.generation();
    world_size_ = fixed_world_size_ > 0 ? fixed_world_size_ : join.world_size();
    members_.clear();
    complete_ = came_back_ = true;
    make_room_for(world_size_ - 1, now);
  }
  require(join.generation() == generation_, ErrorCode::mismatch, from_there + ": another one is there");
  make_room_for(join.rank(), now);
  require(at(join.rank()) != nullptr, ErrorCode::mismatch, from_there + ": it was not one of it", join.rank());
  Member& member = members_[static_cast<std::size_t>(join.rank())];
  if (!member.join.instance().empty()) {
    require(member.join.instance() == join.instance(), ErrorCode::mismatch,
            fmt::format("{}: {} has its place", from_there, who(member)), join.rank());
    return share_place(caller, join.rank());
  }
  member.join = join;
  member.address = address;
  member.connections = 1;
  member.presence = Presence::alive;
  lost_.erase(join.rank());
  ranks_[caller.connection] = join.rank();
  rank_of_instance_[join.instance()] = join.rank();
  welcome(member, caller);
}

void Members::make_room_for(std::int64_t rank, Time now) {
  if (!came_back_ || rank >= kMaxWorldSize) return;
  while (static_cast<std::int64_t>(members_.size()) <= rank) {
    Member& member = members_.emplace_back();
    member.join.set_rank(static_cast<std::int32_t>(members_.size() - 1));
    member.connections = 0;
    if (!is_rank_0s_) not_back_.emplace_back(now + come_back_within_, member.join.rank());
  }
}

// Who died while no server was there would be waited for where no peer has a connection with it: they were still to
// meet, or have met anew since. To a survivor's server a rank comes when its communicator has failed, and not before.
bool Members::tick(Time now) {
  bool more = false;
  for (; !not_back_.empty() && not_back_.front().first <= now; not_back_.pop_front()) {
    const int rank = not_back_.front().second;
    Member& member = members_[static_cast<std::size_t>(rank)];
    if (!member.never_came()) continue;
    member.presence = Presence::lost;
    member.gone_since = now - kComesAgainWithin;  // it had its time
    if (rank < world_size_) lost_.insert(rank);
    more = true;
  }
  return more;
}

// The same process again, because its first connection broke: it takes its own place.
bool Members::rejoin(Caller caller, const proto::Join& join, const std::string& address, Time deadline, Time now) {
  if (join.instance().empty()) return false;
  if (const auto member = rank_of_instance_.find(join.instance()); member != rank_of_instance_.end()) {
    share_place(caller, member->second);
    return true;
  }
  const auto same = by_instance_.find(join.instance());
  if (same == by_instance_.end()) return false;
  const ConnectionId before = same->second;
  const Caller old = waits_.at(open_.at(before).wait).caller;
  remove_open(before);
  replies_.fail(old, Error(ErrorCode::aborted, "this client has joined again over another connection"));
  this->join(caller, join, address, deadline, now);
  return true;
}

void Members::share_place(Caller caller, int rank) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (is_rank_0s_ && rank > 0 && member.joins >= members_.front().joins) {
    return replies_.fail_for_now(
        caller, Error(ErrorCode::timeout, fmt::format("rank {} is a member already, and rank 0 makes no further world "
                                                      "here yet",
                                                      rank)));
  }
  ++member.joins;
  member.connections = member.presence == Presence::alive ? member.connections + 1 : 1;
  member.presence = Presence::alive;
  lost_.erase(rank);
  left_.erase(rank);
  ranks_[caller.connection] = rank;
  welcome(member, caller);
}

void Members::finish() {
  assign_ranks();
  assign_nodes();
  complete_ = true;
  for (Member& member : members_) {
    ranks_[member.connection] = member.join.rank();
    if (!member.join.instance().empty()) rank_of_instance_[member.join.instance()] = member.join.rank();
    welcome(member, waits_.take(std::exchange(member.wait, 0)).caller);
  }
}

// Free ranks go to those who asked for none, so that the ranks of a node are neighbours where that is possible.
void Members::assign_ranks() {
  std::unordered_map<std::string, std::size_t> first_seen;
  std::vector<Member> unnumbered;
  members_.assign(static_cast<std::size_t>(world_size_), {});
  for (auto& [connection, member] : open_) {
    first_seen.emplace(member.join.node(), first_seen.size());
    const int rank = member.join.rank();
    if (rank < 0) {
      unnumbered.push_back(std::move(member));
    } else {
      members_[static_cast<std::size_t>(rank)] = std::move(member);
    }
  }
  std::stable_sort(unnumbered.begin(), unnumbered.end(), [&](const Member& a, const Member& b) {
    const auto key = [&](const Member& m) { return std::pair(first_seen.at(m.join.node()), m.join.local_rank()); };
    return key(a) < key(b);
  });
  auto next = unnumbered.begin();
  for (int rank = 0; rank < world_size_; ++rank) {
    if (claimed_.contains(rank)) continue;
    next->join.set_rank(rank);
    members_[static_cast<std::size_t>(rank)] = std::move(*next++);
  }
  open_.clear();
  claimed_.clear();
  by_instance_.clear();
}

void Members::assign_nodes() {
  std::unordered_map<std::string, std::size_t> index;
  std::vector<std::vector<Member*>> nodes;
  for (Member& member : members_) {
    const auto [place, fresh] = index.emplace(member.join.node(), nodes.size());
    if (fresh) nodes.emplace_back();
    member.node = static_cast<int>(place->second);
    nodes[place->second].push_back(&member);
  }
  nodes_ = static_cast<int>(nodes.size());
  for (const auto& node : nodes) {
    const int size = static_cast<int>(node.size());
    std::set<int> given;
    for (const Member* member : node) given.insert(member->join.local_rank());
    const bool usable = static_cast<int>(given.size()) == size && *given.begin() == 0 && *given.rbegin() == size - 1;
    for (int i = 0; i < size; ++i) {
      Member& member = *node[static_cast<std::size_t>(i)];
      member.local_size = size;
      member.local_rank = usable ? member.join.local_rank() : i;
    }
  }
}

void Members::welcome(Member& member, Caller caller) {
  const Member& first = members_.front();
  proto::Reply reply;
  proto::Membership& answer = *reply.mutable_membership();
  answer.set_rank(static_cast<std::uint32_t>(member.join.rank()));
  answer.set_world_size(static_cast<std::uint32_t>(world_size_));
  answer.set_local_rank(static_cast<std::uint32_t>(member.local_rank));
  answer.set_local_size(static_cast<std::uint32_t>(member.local_size));
  answer.set_node(static_cast<std::uint32_t>(member.node));
  answer.set_nodes(static_cast<std::uint32_t>(nodes_));
  answer.set_master_address(first.join.master_address().empty() ? first.address : first.join.master_address());
  answer.set_master_port(first.join.master_port());
  answer.set_generation(generation_);
  name_server(answer);
  replies_.send(caller, reply);
}

void Members::name_server(proto::Membership& answer) const {
  answer.set_server(server_);
  answer.set_of_rank_0(is_rank_0s_);
  answer.set_job_world_size(static_cast<std::uint32_t>(world_size_));
}

std::string Members::mark() const {
  constexpr std::size_t kBytes = 4;
  std::string mark;
  for (std::size_t i = 0; came_back_ && i < std::min(kBytes, server_.size()); ++i)
    mark += fmt::format("{}{:02x}", i == 0 ? "." : "", static_cast<unsigned char>(server_[i]));
  return mark;
}

void Members::remove_open(ConnectionId connection) {
  const auto found = open_.find(connection);
  const Member& member = found->second;
  waits_.take(member.wait);
  claimed_.erase(member.join.rank());
  by_instance_.erase(member.join.instance());
  open_.erase(found);
  if (open_.empty()) world_size_ = fixed_world_size_;
}

void Members::fail_round(const Error& error) {
  const SharedBody body = Replies::body_of(error);
  while (!open_.empty()) {
    const ConnectionId connection = open_.begin()->first;
    const Caller caller = waits_.at(open_.begin()->second.wait).caller;
    remove_open(connection);
    replies_.send(caller, body);
  }
}

void Members::expire() {
  std::vector<int> unclaimed;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!claimed_.contains(rank)) unclaimed.push_back(rank);
  }
  const std::size_t missing = static_cast<std::size_t>(world_size_) - open_.size();
  const bool known = missing == unclaimed.size();
  const std::string sentence =
      known ? fmt::format(
                  "missing ranks: {} of {} ranks had not joined job '{}' by the deadline: {}; see whether they "
                  "were started and reach the server",
                  missing, world_size_, job_, list_of(unclaimed))
            : fmt::format(
                  "missing ranks: {} of {} ranks had not joined job '{}' by the deadline (nobody asks for rank "
                  "{}); see whether they were started and reach the server",
                  missing, world_size_, job_, list_of(unclaimed));
  fail_round(Error(ErrorCode::timeout, sentence, known ? unclaimed.front() : -1));
}

void Members::gone(ConnectionId connection, Presence how, const std::string& reason, Time now) {
  if (open_.contains(connection)) return remove_open(connection);
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) return;
  const int rank = found->second;
  ranks_.erase(found);
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (--member.connections > 0) return;
  member.presence = how;
  member.reason = reason;
  member.gone_since = now;
  if (rank < world_size_) (how == Presence::lost ? lost_ : left_).insert(rank);
}

int Members::append(const proto::Join& join, ConnectionId connection, const std::string& address) {
  const int rank = static_cast<int>(members_.size());
  Member& member = members_.emplace_back(Member{.join = join, .connection = connection, .address = address});
  member.join.set_rank(rank);
  ranks_[connection] = rank;
  return rank;
}

const Member* Members::of(ConnectionId connection) const {
  const auto rank = ranks_.find(connection);
  return rank == ranks_.end() ? nullptr : at(rank->second);
}
const Member* Members::at(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return complete_ && rank >= 0 && index < members_.size() ? &members_[index] : nullptr;
}
const Member* Members::first_absent() const {
  if (!lost_.empty()) return at(*lost_.begin());
  return left_.empty() ? nullptr : at(*left_.begin());
}
const Member* Members::first_lost(Time now) const {
  const Member* first = nullptr;
  for (const int rank : lost_) {
    const Member* member = at(rank);
    if (now < member->gone_since + kComesAgainWithin) continue;
    if (first == nullptr || member->gone_since < first->gone_since) first = member;
  }
  return first;
}
bool Members::at_rest(Time now) const {
  const auto may_come_again = [&](int rank) { return now < at(rank)->gone_since + come_back_within_; };
  return complete_ && not_back_.empty() && std::ranges::none_of(lost_, may_come_again);
}
std::string Members::describe(ConnectionId connection) const {
  if (const Member* member = of(connection)) return who(*member);
  const auto waiting = open_.find(connection);
  return waiting == open_.end() ? "a client that has not joined" : who(waiting->second);
}

}  // namespace rondo::rendezvous
