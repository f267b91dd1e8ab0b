// SPDX-License-Identifier: Apache-2.0
// Communicators that come from others: split() meets over the parent, shrink() over the store.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "comm/base/bytes.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/create.hpp"

namespace rondo::comm {
namespace {

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

// Threads share a pointer: the group's first rank makes what they share, and keeps it until all have it.
Communicator split_threads(detail::CommunicatorImpl& parent, const std::vector<int>& group, const Options& options) {
  std::shared_ptr<LocalGroup> shared;
  if (!group.empty() && group.front() == parent.rank()) {
    shared = make_local_group(static_cast<int>(group.size()), options);
  }
  const auto pointers = gather_all(parent, reinterpret_cast<std::uintptr_t>(&shared));
  if (!group.empty()) {
    shared = *reinterpret_cast<const std::shared_ptr<LocalGroup>*>(pointers[static_cast<std::size_t>(group.front())]);
  }
  parent.submit_on_host({.collective = Collective::barrier});
  if (group.empty()) return {};
  const auto own = std::find(group.begin(), group.end(), parent.rank());
  return join_local_group(shared, static_cast<int>(own - group.begin()), options.device);
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
  bootstrap.rank = static_cast<int>(own - group.begin());
  bootstrap.world_size = static_cast<int>(group.size());
  bootstrap.name = fmt::format("{}/{}.{}", bootstrap.name, child, color);
  const auto& job_ranks = parent.bootstrap().job_ranks;
  bootstrap.job_ranks.clear();
  for (const int r : group) bootstrap.job_ranks.push_back(job_ranks[static_cast<std::size_t>(r)]);
  ParentStore place(parent, group);
  return connect(std::move(bootstrap), place, options, parent.team().monitor());
}

Communicator shrink_threads(detail::CommunicatorImpl& failed, Store& place, const std::string& name, int rank, int size,
                            Store::Deadline deadline) {
  std::shared_ptr<LocalGroup> shared;
  if (rank == 0) shared = make_local_group(size, failed.options());
  const auto own = ByteWriter().number(reinterpret_cast<std::uintptr_t>(&shared)).take();
  const auto pointers = place.exchange(name, rank, size, own, deadline);
  shared = *reinterpret_cast<const std::shared_ptr<LocalGroup>*>(ByteReader(pointers[0]).number<std::uintptr_t>());
  place.exchange(name + "/copied", rank, size, own, deadline);
  return join_local_group(shared, rank, failed.options().device);
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

Communicator shrink(detail::CommunicatorImpl& failed) {
  failed.check_process();
  Bootstrap next = failed.bootstrap();
  next.generation += 1;
  const auto deadline = std::chrono::steady_clock::now() + failed.options().join_timeout;
  const std::string name = fmt::format("{}@{}", next.name, next.generation);
  const auto survivors = next.store->survivors(name, failed.rank(), next.job_ranks, deadline);
  const auto own = std::find(survivors.begin(), survivors.end(), failed.rank());
  next.rank = static_cast<int>(own - survivors.begin());
  next.world_size = static_cast<int>(survivors.size());
  std::vector<int> job_ranks;
  for (const int r : survivors) job_ranks.push_back(next.job_ranks[static_cast<std::size_t>(r)]);
  next.job_ranks = std::move(job_ranks);
  Store& place = *failed.bootstrap().store;
  if (failed.team().monitor()) return connect(std::move(next), place, failed.options(), failed.team().monitor());
  return shrink_threads(failed, place, name, next.rank, next.world_size, deadline);
}

}  // namespace rondo::comm
