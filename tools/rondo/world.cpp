// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace rondo::records {
namespace {

using Name = std::pair<std::string, std::int64_t>;

bool counts(const Call& call) { return !call.is_message() && !call.on_device; }

// What a rank says of itself counts; what others say of it is used where it is silent.
void hear(World& world, const Record& record, const Communicator& own) {
  World::Member& self = world.members[own.rank];
  self.job_rank = own.job_rank;
  self.record = &record;
  self.own = &own;
  self.calls = own.calls;
  for (const Call& call : own.calls)
    if (counts(call)) self.entered = std::max(self.entered, call.sequence);
  world.world_size = std::max(world.world_size, own.world_size);
  if (world.failure.empty()) world.failure = own.failure;
}

void hear_of(World& world, const Peer& peer) {
  World::Member& other = world.members[peer.rank];
  if (other.own == nullptr) other.job_rank = peer.job_rank;
  other.entered = std::max(other.entered, peer.entered);
  if (other.state.empty()) other.state = peer.state;
  if (other.own == nullptr && other.calls.size() < peer.history.size()) other.calls = peer.history;
}

std::map<int, const Call*> calls_at(const World& world, std::int64_t sequence) {
  std::map<int, const Call*> found;
  for (const auto& [rank, member] : world.members)
    for (const Call& call : member.calls)
      if (counts(call) && call.sequence == sequence) found[rank] = &call;
  return found;
}

std::vector<std::int64_t> sequences_of(const World& world) {
  std::vector<std::int64_t> all;
  for (const auto& [rank, member] : world.members)
    for (const Call& call : member.calls)
      if (counts(call)) all.push_back(call.sequence);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

std::vector<World> worlds_of(const Folder& folder) {
  std::map<Name, World> found;
  for (const auto& [rank, record] : folder.records)
    for (const Communicator& own : record.communicators) hear(found[{own.name, own.generation}], record, own);
  for (const auto& [rank, record] : folder.records)
    for (const Communicator& own : record.communicators)
      for (const Peer& peer : own.peers) hear_of(found[{own.name, own.generation}], peer);
  std::vector<World> worlds;
  for (auto& [name, world] : found) {
    world.name = name.second == 0 ? name.first : fmt::format("{} (generation {})", name.first, name.second);
    worlds.push_back(std::move(world));
  }
  std::stable_sort(worlds.begin(), worlds.end(),
                   [](const World& a, const World& b) { return a.world_size > b.world_size; });
  return worlds;
}

// Only calls that reduce have an operator.
std::string describe(const Call& call) {
  if (call.collective == "barrier") return call.collective;
  std::string out = fmt::format("{} of {} {}", call.collective, call.count, call.dtype);
  if (call.collective.find("reduce") != std::string::npos) out += ", " + call.reduce_op;
  if (call.root >= 0) out += fmt::format(", root {}", call.root);
  return out;
}

Divergence first_divergence(const World& world) {
  for (const std::int64_t sequence : sequences_of(world)) {
    Divergence found{.sequence = sequence, .ranks = {}};
    for (const auto& [rank, call] : calls_at(world, sequence)) found.ranks[describe(*call)].push_back(rank);
    if (found.ranks.size() > 1) return found;
  }
  return {};
}

std::vector<Wait> waits_of(const World& world) {
  std::map<std::tuple<std::int64_t, std::string, std::vector<int>>, Wait> waits;
  for (const auto& [rank, member] : world.members) {
    if (member.own == nullptr || member.calls.empty()) continue;
    const auto open = std::find_if(member.calls.begin(), member.calls.end(),
                                   [](const Call& call) { return counts(call) && !call.ended_us; });
    if (open == member.calls.end()) continue;
    std::vector<int> missing;
    for (const auto& [other, theirs] : world.members)
      if (other != rank && theirs.entered < open->sequence) missing.push_back(other);
    Wait& wait = waits[{open->sequence, describe(*open), missing}];
    const double waited_us = member.record->written_us - open->begun_us;
    if (wait.waiting.empty() || open->begun_us < wait.since_us) {
      wait.call = *open;
      wait.since_us = open->begun_us;
    }
    wait.longest_us = std::max(wait.longest_us, waited_us);
    wait.waiting.push_back(rank);
    wait.missing = std::move(missing);
  }
  std::vector<Wait> all;
  for (auto& [key, wait] : waits) all.push_back(std::move(wait));
  return all;
}

std::map<int, Lateness> lateness_of(const World& world) {
  std::map<int, std::vector<double>> gaps;
  int compared = 0;
  const auto of_themselves = std::count_if(world.members.begin(), world.members.end(),
                                           [](const auto& entry) { return entry.second.own != nullptr; });
  for (const std::int64_t sequence : sequences_of(world)) {
    std::vector<std::pair<double, int>> came;
    for (const auto& [rank, call] : calls_at(world, sequence))
      if (call->begun_us != 0) came.emplace_back(call->begun_us, rank);
    if (came.size() < 2 || static_cast<std::ptrdiff_t>(came.size()) < of_themselves) continue;
    std::sort(came.begin(), came.end());
    ++compared;
    gaps[came.back().second].push_back(came.back().first - came[came.size() - 2].first);
  }
  std::map<int, Lateness> result;
  for (auto& [rank, all] : gaps) {
    std::sort(all.begin(), all.end());
    result[rank] = {.times = static_cast<int>(all.size()),
                    .calls = compared,
                    .median_us = all[all.size() / 2],
                    .most_us = all.back()};
  }
  return result;
}

}  // namespace rondo::records
