// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "tools/rondo/words.hpp"
#include "tools/rondo/world.hpp"

namespace rondo::records {
namespace {

constexpr std::size_t kMostRanksShown = 32;  // or it would be no page

std::string_view state_in_words(const std::string& state) {
  if (state == "R") return "was running then, ";
  if (state == "S" || state == "I") return "was asleep then, ";
  if (state == "D") return "waited in the kernel then, ";
  if (state == "T" || state == "t") return "was stopped then, ";
  return "";  // it had ended
}

std::string heading(const Folder& folder) {
  std::string out;
  for (const Job& job : folder.jobs) {
    out += fmt::format("Job {}, {} rank{}{}: {}\n", job.job, job.world_size, job.world_size == 1 ? "" : "s",
                       job.nodes > 1 ? fmt::format(", node {} of {}", job.node, job.nodes) : "",
                       fmt::join(job.command, " "));
    out += fmt::format("{} on host {}: {}.\n", clock_time(job.happened_us, "%Y-%m-%d %H:%M:%S"), job.host,
                       job.sentence.empty() ? "somebody asked what the ranks are in" : job.sentence);
  }
  return out;
}

std::string what_happened(const World& world) {
  std::string out;
  const Divergence divergence = first_divergence(world);
  if (divergence.sequence != 0) {
    out += fmt::format("- The first call in which ranks differ is #{} of {}:\n", divergence.sequence, world.name);
    for (const auto& [what, ranks] : divergence.ranks) out += fmt::format("  {} called {}.\n", named(ranks), what);
  }
  if (!world.failure.empty()) out += fmt::format("- {} failed: {}.\n", world.name, world.failure);
  return out;
}

std::string waiting(const World& world) {
  std::string out;
  for (const Wait& wait : waits_of(world)) {
    const std::string for_whom = wait.missing.empty()
                                     ? "; all had made their call #" + std::to_string(wait.call.sequence)
                                     : fmt::format(", for {}", named(wait.missing));
    out += fmt::format("- {} {} in #{} of {}, {}, since {}, for {}{}.\n", named(wait.waiting),
                       wait.missing.empty() ? "were" : "waited", wait.call.sequence, world.name, describe(wait.call),
                       clock_time(wait.since_us), duration(wait.longest_us), for_whom);
    for (const int rank : wait.missing) {
      const World::Member& late = world.members.at(rank);
      out += fmt::format(
          "  rank {} had entered {} by then{}.\n", rank,
          late.entered == 0 ? "no call" : fmt::format("#{}", late.entered),
          late.state.empty() ? "" : fmt::format(", and {} {}", late.state == "left" ? "had" : "was", late.state));
    }
  }
  return out;
}

// In the world that it is in with most others.
std::string last_call(const std::vector<World>& worlds, int job_rank) {
  for (const World& world : worlds) {
    for (const auto& [rank, member] : world.members) {
      if (member.job_rank != job_rank || member.calls.empty()) continue;
      const Call& last = member.calls.back();
      const std::string when = member.own == nullptr ? ", as its neighbours know"
                               : !last.ended_us      ? ", and was in it"
                                                     : fmt::format(", over at {}", clock_time(*last.ended_us));
      return fmt::format("its last call was {}{} of {}{}", describe(last),
                         last.is_message() ? "" : fmt::format(", #{}", last.sequence), world.name, when);
    }
  }
  return "nothing is known of its calls";
}

// Of a rank of the launcher's.
int number_in_job(const Folder& folder, int rank, const RankEnd* end) {
  const auto record = folder.records.find(rank);
  const bool joined = end != nullptr && end->replaces && record != folder.records.end();
  return joined && !record->second.communicators.empty() ? record->second.communicators.front().job_rank : rank;
}

std::string line_of(const Folder& folder, const std::vector<World>& worlds, int rank, const RankEnd* end) {
  const auto record = folder.records.find(rank);
  const bool killed = end != nullptr && end->signal.value_or(0) != 0;
  std::string out = fmt::format("- rank {}", rank);
  if (end != nullptr) out += fmt::format(" (pid {}) {}{}", end->pid, state_in_words(end->state), how_it_ended(*end));
  out += "; " + last_call(worlds, number_in_job(folder, rank, end));
  if (record == folder.records.end())
    out += killed ? "; it was killed before it could write"
                  : "; it wrote nothing: it had no communicator, or did not answer";
  return out + ".\n";
}

std::string ranks(const Folder& folder, const std::vector<World>& worlds) {
  std::map<int, const RankEnd*> all;
  std::set<int> failed;
  for (const auto& [rank, record] : folder.records) all[rank] = nullptr;
  for (const Job& job : folder.jobs) {
    for (const RankEnd& end : job.ranks) all[end.rank] = &end;
    failed.insert(job.failed_rank);
  }
  std::vector<int> order;
  for (const auto& [rank, end] : all) order.push_back(rank);
  std::stable_partition(order.begin(), order.end(), [&](int rank) { return failed.contains(rank); });
  std::string out;
  for (std::size_t i = 0; i < std::min(order.size(), kMostRanksShown); ++i)
    out += line_of(folder, worlds, order[i], all[order[i]]);
  if (order.size() > kMostRanksShown) out += fmt::format("- and {} more.\n", order.size() - kMostRanksShown);
  return out;
}

std::string last_lines(const Folder& folder) {
  std::string out;
  for (const Job& job : folder.jobs)
    for (const RankEnd& end : job.ranks)
      if (end.rank == job.failed_rank)
        for (const std::string& line : end.last_lines) out += fmt::format("  {}\n", line);
  return out;
}

std::string late(const World& world) {
  std::string out;
  for (const auto& [rank, by] : lateness_of(world))
    out += fmt::format("- rank {} came last in {} of {} calls of {}, by {} as a median and {} at most.\n", rank,
                       by.times, by.calls, world.name, duration(by.median_us), duration(by.most_us));
  return out;
}

std::string section(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("\n{}\n{}", title, body);
}

}  // namespace

std::string page_of(const Folder& folder) {
  const std::vector<World> worlds = worlds_of(folder);
  std::string happened, waited, came_late;
  for (const World& world : worlds) {
    happened += what_happened(world);
    waited += waiting(world);
    came_late += late(world);
  }
  return heading(folder) + section("What happened", happened) + section("Who waited for whom", waited) +
         section("Ranks", ranks(folder, worlds)) + section("Last lines of the rank that failed", last_lines(folder)) +
         section("Who came last", came_late);
}

}  // namespace rondo::records
