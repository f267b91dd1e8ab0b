// SPDX-License-Identifier: Apache-2.0
#include "sequence.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "job.hpp"

namespace consumer {
namespace {

// A group as every rank of the world knows it; `comm` is empty on those who are not in it.
struct Team {
  rondo::Communicator* comm = nullptr;
  rondo::Communicator owned;
  std::vector<int> members;  // world ranks, in order of the group's ranks
};

class Sequence {
 public:
  Sequence(rondo::Communicator& world, std::uint64_t seed) : me_(world.rank()), random_(seed) {
    auto all = std::make_unique<Team>();
    all->comm = &world;
    for (int rank = 0; rank < world.world_size(); ++rank) all->members.push_back(rank);
    teams_.push_back(std::move(all));
  }

  void step() {
    const int kind = random_.index(100);
    Team& team = *teams_[random_.below(teams_.size())];
    if (kind < 6 && teams_.size() < 6) {
      split(team);
    } else if (kind < 9 && teams_.size() > 1) {
      teams_.erase(teams_.begin() + 1 + static_cast<std::ptrdiff_t>(random_.below(teams_.size() - 1)));
    } else if (kind < 12) {
      gather_bytes(team);
    } else {
      calls(team);
    }
  }

 private:
  // Colors and keys are drawn for every member, so everybody knows who is where. Color -1 leaves.
  void split(const Team& parent) {
    const int colors = 1 + random_.index(3);
    struct Ticket {
      int color, key, index;
    };
    std::vector<Ticket> tickets;
    for (int index = 0; index < static_cast<int>(parent.members.size()); ++index) {
      tickets.push_back({random_.index(colors + 1) - 1, random_.index(4) - 2, index});
    }
    rondo::Communicator mine;
    int my_color = -1;
    if (*parent.comm) {
      const Ticket& ticket = tickets[to_size(parent.comm->rank())];
      my_color = ticket.color;
      mine = parent.comm->split(ticket.color, ticket.key);
    }
    std::stable_sort(tickets.begin(), tickets.end(), [](const Ticket& a, const Ticket& b) { return a.key < b.key; });
    for (int color = 0; color < colors; ++color) {
      auto team = std::make_unique<Team>();
      for (const Ticket& ticket : tickets) {
        if (ticket.color == color) team->members.push_back(parent.members[to_size(ticket.index)]);
      }
      team->comm = &team->owned;
      if (color == my_color) team->owned = std::move(mine);
      check_team(*team);
      if (!team->members.empty()) teams_.push_back(std::move(team));
    }
    if (my_color < 0 && mine) throw std::runtime_error("split with color -1 gave a communicator");
  }

  void check_team(const Team& team) const {
    const auto at = std::find(team.members.begin(), team.members.end(), me_);
    if ((at != team.members.end()) != static_cast<bool>(*team.comm)) throw std::runtime_error("split: wrong members");
    if (!*team.comm) return;
    if (team.comm->rank() != at - team.members.begin()) throw std::runtime_error("split: wrong rank");
    if (to_size(team.comm->world_size()) != team.members.size()) throw std::runtime_error("split: wrong size");
  }

  void gather_bytes(const Team& team) {
    std::vector<std::vector<std::byte>> values;
    for (std::size_t i = 0; i < team.members.size(); ++i) {
      values.emplace_back(random_.chance(20) ? 0 : random_.below(3000), static_cast<std::byte>(random_.next()));
    }
    if (*team.comm && team.comm->all_gather_bytes(values[to_size(team.comm->rank())]) != values) {
      throw std::runtime_error("all_gather_bytes: wrong bytes");
    }
  }

  // One call, or several that are under way together.
  void calls(const Team& team) {
    const Style style = draw_style();
    const bool together = style == Style::async || style == Style::group;
    std::vector<Step> steps(together ? 1 + random_.below(4) : 1);
    for (Step& step : steps) step = draw_step(random_, static_cast<int>(team.members.size()), style);
    if (!*team.comm) return;
    std::string text;
    for (const Step& step : steps) text += (text.empty() ? "" : "; ") + describe(step);
    try {
      run(*team.comm, steps, style);
    } catch (const std::exception& error) {
      throw std::runtime_error("rank " + std::to_string(team.comm->rank()) + " of " +
                               std::to_string(team.members.size()) + ", " + text + ": " + error.what());
    }
  }

  static void run(rondo::Communicator& comm, const std::vector<Step>& steps, Style style) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (const Step& step : steps) jobs.push_back(make_job(step, comm));
    if (style == Style::group) {
      auto group = comm.group();
      for (const auto& job : jobs) job->record(group);
      group.end();
    } else {
      for (const auto& job : jobs) job->start(comm);
    }
    for (const auto& job : jobs) job->verify(comm);
    comm.check();
  }

  Style draw_style() {
    const int kind = random_.index(100);
    if (kind < 45) return Style::blocking;
    if (kind < 60) return Style::untyped;
    if (kind < 78) return Style::async;
    return kind < 95 ? Style::group : Style::window;
  }

  int me_;
  Random random_;
  std::vector<std::unique_ptr<Team>> teams_;
};

}  // namespace

std::unique_ptr<Job> make_job(const Step& step, rondo::Communicator& comm) {
  using enum rondo::DataType;
  switch (step.dtype) {
    case i8:
      return std::make_unique<TypedJob<std::int8_t>>(step, comm);
    case u8:
      return std::make_unique<TypedJob<std::uint8_t>>(step, comm);
    case i32:
      return std::make_unique<TypedJob<std::int32_t>>(step, comm);
    case u32:
      return std::make_unique<TypedJob<std::uint32_t>>(step, comm);
    case i64:
      return std::make_unique<TypedJob<std::int64_t>>(step, comm);
    case u64:
      return std::make_unique<TypedJob<std::uint64_t>>(step, comm);
    case f16:
      return std::make_unique<TypedJob<rondo::float16>>(step, comm);
    case bf16:
      return std::make_unique<TypedJob<rondo::bfloat16>>(step, comm);
    case f32:
      return std::make_unique<TypedJob<float>>(step, comm);
    case f64:
      return std::make_unique<TypedJob<double>>(step, comm);
    case f8e4m3:
      return std::make_unique<TypedJob<rondo::float8_e4m3>>(step, comm);
    case f8e5m2:
      return std::make_unique<TypedJob<rondo::float8_e5m2>>(step, comm);
  }
  throw std::runtime_error("a dtype that this program does not know");
}

void run_sequence(rondo::Communicator& world, std::uint64_t seed, int steps) {
  Sequence sequence(world, seed);
  for (int step = 0; step < steps; ++step) {
    try {
      sequence.step();
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string("step ").append(std::to_string(step)).append(": ").append(error.what()));
    }
  }
}

}  // namespace consumer
