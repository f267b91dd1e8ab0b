// SPDX-License-Identifier: Apache-2.0
// Communicators that come from others: split() meets over the parent, shrink() over the store.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/setup/absences.hpp"
#include "comm/setup/create.hpp"
#include "comm/setup/local_store.hpp"

namespace rondo::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Meetings of as many survivors as the one before: a connection to the server broke, and came back.
constexpr int kMostAgain = 8;

struct Member {
  int color, key, rank;
};

// exchange() over the parent: all its ranks take part, each gets the values of its own group.
class ParentStore final : public Store {
 public:
  ParentStore(detail::CommunicatorImpl& parent, std::vector<int> group) : parent_(parent), group_(std::move(group)) {}
  std::vector<Bytes> exchange(std::string_view, int, int, std::span<const std::byte> value, Deadline) override {
    const auto all = parent_.all_gather_bytes(value);
    std::vector<Bytes> ours;
    for (const int rank : group_) ours.push_back(all[static_cast<std::size_t>(rank)]);
    return ours;
  }
  void set(std::string_view, std::span<const std::byte>) override { refuse(); }
  Bytes get(std::string_view, Deadline) override { refuse(); }
  std::optional<Bytes> try_get(std::string_view) override { refuse(); }
  std::int64_t add(std::string_view, std::int64_t) override { refuse(); }
  bool compare_and_set(std::string_view, std::optional<Bytes>, std::span<const std::byte>) override { refuse(); }
  bool erase(std::string_view) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw Error(ErrorCode::unsupported, "ranks that split can only exchange"); }
  detail::CommunicatorImpl& parent_;
  std::vector<int> group_;
};

template <class T>
std::vector<T> gather_all(detail::CommunicatorImpl& impl, const T& value) {
  std::vector<T> all(static_cast<std::size_t>(impl.world_size()));
  impl.submit_on_host({.collective = Collective::all_gather,
                       .send = &value,
                       .recv = all.data(),
                       .count = sizeof(T),
                       .dtype = DataType::u8});
  return all;
}

LocalStore& local_store(detail::CommunicatorImpl& impl) {
  return dynamic_cast<LocalMember&>(*impl.bootstrap().store).shared();
}

// Threads share a pointer: the group's first rank makes what they share, and leaves it in their store.
Communicator split_threads(detail::CommunicatorImpl& parent, const std::vector<int>& group, const Options& options) {
  const std::string name = group.empty() ? "" : fmt::format("child {} of rank {}", parent.next_child(), group.front());
  if (!group.empty() && group.front() == parent.rank())
    local_store(parent).lend(name, make_local_group(static_cast<int>(group.size()), options), group.size());
  parent.submit_on_host({.collective = Collective::barrier});
  if (group.empty()) {
    parent.next_child();
    return {};
  }
  const auto shared = std::static_pointer_cast<LocalGroup>(local_store(parent).take(name));
  const auto own = std::find(group.begin(), group.end(), parent.rank());
  return join_local_group(shared, static_cast<int>(own - group.begin()), options.device, parent.driver());
}

// Who calls split() knows ranks by their numbers in what is split.
Error as_of_parent(const Error& error, const std::vector<int>& group) {
  if (error.culprit() < 0 || error.culprit() >= static_cast<int>(group.size())) return error;
  const int rank = group[static_cast<std::size_t>(error.culprit())];
  if (rank == error.culprit()) return error;
  return {error.error_code(),
          fmt::format("split: rank {} here would be rank {} there: {}", rank, error.culprit(), error.what()), rank};
}

Communicator split_processes(detail::CommunicatorImpl& parent, int color, const std::vector<int>& group,
                             const Options& options) {
  const int child = parent.next_child();
  if (group.empty()) {
    for (int i = 0; i < kExchanges; ++i) parent.all_gather_bytes({});
    return {};
  }
  const auto own = std::find(group.begin(), group.end(), parent.rank());
  Bootstrap bootstrap = parent.bootstrap();
  bootstrap.driver = parent.driver();
  bootstrap.rank = static_cast<int>(own - group.begin());
  bootstrap.world_size = static_cast<int>(group.size());
  bootstrap.name = fmt::format("{}/{}.{}", bootstrap.name, child, color);
  const auto& job_ranks = parent.bootstrap().job_ranks;
  bootstrap.job_ranks.clear();
  for (const int r : group) bootstrap.job_ranks.push_back(job_ranks[static_cast<std::size_t>(r)]);
  ParentStore place(parent, group);
  // The job's store may be gone by now, and belongs to a rank that has no part in this.
  comm::Team& team = parent.team();
  const auto number = static_cast<std::uint32_t>(child) + 1;
  try {
    return connect(
        std::move(bootstrap), place, options, [&team] { team.failure().check(); },
        {.tell = [&] { team.keep_apart(number); },
         .has_told = [&](int rank) { return team.keeps_apart(group[static_cast<std::size_t>(rank)], number); }});
  } catch (const Error& error) {
    team.failure().check();
    throw Error(as_of_parent(error, group));
  }
}

// What survivors of a failed communicator have in common: one try to meet.
struct Survivors {
  std::vector<int> ranks;  // in the failed communicator
  Bootstrap next;
  std::string name;  // of the meeting
};

// Rank 0 served, and once it is gone any rank of its host may, as no other can have its address. Where none is left of
// all that the job has, survivors of other hosts would wait for their deadline. A name for the node hides which it is.
void check_place(detail::CommunicatorImpl& failed, const MeetingAgain& place) {
  const auto& job_ranks = failed.bootstrap().job_ranks;
  const auto first = std::find(job_ranks.begin(), job_ranks.end(), 0);
  const bool knows_all = static_cast<int>(job_ranks.size()) == place.job_size() && failed.options().node.empty();
  if (first == job_ranks.end() || !knows_all) return;
  const comm::Team& team = failed.team();
  const int server = static_cast<int>(first - job_ranks.begin());
  const comm::Placement& its = team.placement(server);
  for (int r = 0; r < team.size(); ++r) {
    if (team.placement(r).node == its.node && !team.lost(r)) return;
  }
  throw Error(
      ErrorCode::peer_lost,
      fmt::format("rank {} (host {}, pid {}) served the rendezvous of this job, and no rank of its host is left "
                  "to take its place: the survivors cannot meet; start the job again, or let rondo-rendezvous "
                  "serve it on a host that outlives others",
                  server, its.host, its.pid),
      server);
}

class LookingOut {
 public:
  explicit LookingOut(detail::CommunicatorImpl& failed) : place_(failed.bootstrap().meeting_again) {
    if (place_) place_->set_lookout([this, &failed] { check_place(failed, *place_); });
  }
  ~LookingOut() {
    if (place_) place_->set_lookout({});
  }
  LookingOut(const LookingOut&) = delete;
  LookingOut& operator=(const LookingOut&) = delete;

 private:
  const std::shared_ptr<MeetingAgain> place_;
};

// Also of the smaller communicator, of which others may ask.
void tell_missing(Store& store, const std::string& name, const Doubt& doubt, std::span<const int> missing) {
  store.missing(name, missing);
  if (doubt.instead.empty()) return;
  std::vector<int> members(missing.begin(), missing.end());
  std::erase_if(members, [&](int rank) { return rank >= doubt.members; });
  store.missing(doubt.instead, members);
}

Survived ask_who_survived(detail::CommunicatorImpl& failed, const Doubt& doubt, Store::Deadline deadline) {
  const LookingOut looking_out(failed);
  const Lineage& own = failed.ancestry().own();
  const Bootstrap& place = failed.bootstrap();
  if (doubt.growth.empty())
    return {.ranks = place.store->survivors(own.next_key(), failed.rank(), own.job_ranks, deadline)};
  return place.recruiter->survivors(own.next_key(), failed.rank(), own.job_ranks, doubt, deadline);
}

// Ranks that have decided together have decided equally often, whether or not they came together after it. `absences`:
// told from now on, also while they come together.
Survivors decide(detail::CommunicatorImpl& failed, Store::Deadline deadline, std::optional<Absences>& absences) {
  const Doubt doubt = failed.ancestry().doubt();
  if (failed.team().monitor()) {
    absences.emplace(failed.team(),
                     [store = failed.bootstrap().store, name = failed.ancestry().own().next_key(),
                      doubt](std::span<const int> missing) { tell_missing(*store, name, doubt, missing); });
  }
  const Survived survived = ask_who_survived(failed, doubt, deadline);
  if (survived.in_smaller) {
    log::info("{} was given up by others: its members go on as survivors of the smaller one", doubt.growth);
    failed.ancestry().become_smaller();
  }
  const Lineage lineage = failed.ancestry().own();
  failed.ancestry().count_decision();
  const auto own = std::find(survived.ranks.begin(), survived.ranks.end(), failed.rank());
  if (own == survived.ranks.end())
    throw Error(ErrorCode::peer_lost,
                fmt::format("the survivors of {} went on without rank {}", lineage.next_name(), failed.rank()),
                failed.rank());
  Survivors survivors{.ranks = survived.ranks, .next = failed.bootstrap(), .name = lineage.next_key()};
  Bootstrap& next = survivors.next;
  next.driver = failed.driver();
  next.name = lineage.next_name();
  next.generation = lineage.generation + 1;
  next.rank = static_cast<int>(own - survived.ranks.begin());
  next.world_size = static_cast<int>(survived.ranks.size());
  next.job_ranks.clear();
  for (const int r : survived.ranks) next.job_ranks.push_back(lineage.job_ranks[static_cast<std::size_t>(r)]);
  return survivors;
}

Communicator join_threads(detail::CommunicatorImpl& failed, const Survivors& survivors, Store::Deadline deadline) {
  LocalStore& place = local_store(failed);
  const Bootstrap& next = survivors.next;
  if (next.rank == 0)
    place.lend(survivors.name, make_local_group(next.world_size, failed.options()), survivors.ranks.size());
  place.exchange(survivors.name, next.rank, next.world_size, {}, deadline);
  const auto shared = std::static_pointer_cast<LocalGroup>(place.take(survivors.name));
  return join_local_group(shared, next.rank, failed.options().device, failed.driver());
}

// All of them have a communicator, or none.
Communicator join_processes(detail::CommunicatorImpl& failed, const Survivors& survivors, Store::Deadline deadline) {
  Store& place = *failed.bootstrap().store;
  Bootstrap next = survivors.next;
  next.deadline = deadline;
  Communicator made = connect(std::move(next), place, failed.options(), [&] {
    for (const int r : survivors.ranks) failed.team().check_presence(r);
  });
  place.exchange(survivors.name + "/made", survivors.next.rank, survivors.next.world_size, {}, deadline);
  return made;
}

}  // namespace

Communicator split(detail::CommunicatorImpl& parent, int color, int key) {
  return split(parent, color, key, parent.options());
}

Communicator split(detail::CommunicatorImpl& parent, int color, int key, const Options& options) {
  auto members = gather_all(parent, Member{color, key, parent.rank()});
  std::erase_if(members, [&](const Member& m) { return m.color != color || color < 0; });
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  std::vector<int> group;
  for (const Member& m : members) group.push_back(m.rank);
  if (!parent.team().monitor()) return split_threads(parent, group, options);
  return split_processes(parent, color, group, options);
}

Communicator move_to(Communicator& ranks, Device device) {
  detail::CommunicatorImpl& impl = detail::impl_of(ranks);
  Options options = impl.options();
  options.device = device;
  return split(impl, 0, impl.rank(), options);
}

// Survivors may die too, before they have met: then the others find out together, and go on without them.
Communicator shrink(detail::CommunicatorImpl& failed) {
  failed.check_process();
  const auto deadline = deadline_after(failed.options().join_timeout);
  std::size_t before = 0;
  for (int again = 0;;) {
    std::optional<Absences> absences;
    const Survivors survivors = decide(failed, deadline, absences);
    if (!failed.team().monitor()) return join_threads(failed, survivors, deadline);
    try {
      return join_processes(failed, survivors, deadline);
    } catch (const Error& error) {
      const bool fewer = before == 0 || survivors.ranks.size() < before;
      if (error.error_code() != ErrorCode::peer_lost || (!fewer && ++again > kMostAgain)) throw;
      log::info("{}: {}; the other survivors meet again", survivors.name, error.what());
    }
    before = survivors.ranks.size();
  }
}

}  // namespace rondo::comm
