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
struct Party {
  rondo::Communicator* comm = nullptr;
  rondo::Communicator owned;
  std::vector<int> members;  // world ranks, in order of the group's ranks
};

class Sequence {
 public:
  Sequence(rondo::Communicator& world, std::uint64_t seed) : me_(world.rank()), random_(seed) {
    auto all = std::make_unique<Party>();
    all->comm = &world;
    for (int rank = 0; rank < world.world_size(); ++rank) all->members.push_back(rank);
    parties_.push_back(std::move(all));
  }

  void step() {
    const int kind = random_.index(100);
    Party& party = *parties_[random_.below(parties_.size())];
    if (kind < 6 && parties_.size() < 6) {
      split(party);
    } else if (kind < 9 && parties_.size() > 1) {
      parties_.erase(parties_.begin() + 1 + static_cast<std::ptrdiff_t>(random_.below(parties_.size() - 1)));
    } else if (kind < 12) {
      gather_bytes(party);
    } else {
      calls(party);
    }
  }

 private:
  // Colors and keys are drawn for every member, so everybody knows who is where. Color -1 leaves.
  void split(const Party& parent) {
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
      auto party = std::make_unique<Party>();
      for (const Ticket& ticket : tickets) {
        if (ticket.color == color) party->members.push_back(parent.members[to_size(ticket.index)]);
      }
      party->comm = &party->owned;
      if (color == my_color) party->owned = std::move(mine);
      check_party(*party);
      if (!party->members.empty()) parties_.push_back(std::move(party));
    }
    if (my_color < 0 && mine) throw std::runtime_error("split with color -1 gave a communicator");
  }

  void check_party(const Party& party) const {
    const auto at = std::find(party.members.begin(), party.members.end(), me_);
    if ((at != party.members.end()) != static_cast<bool>(*party.comm)) throw std::runtime_error("split: wrong members");
    if (!*party.comm) return;
    if (party.comm->rank() != at - party.members.begin()) throw std::runtime_error("split: wrong rank");
    if (to_size(party.comm->world_size()) != party.members.size()) throw std::runtime_error("split: wrong size");
  }

  void gather_bytes(const Party& party) {
    std::vector<std::vector<std::byte>> values;
    for (std::size_t i = 0; i < party.members.size(); ++i) {
      values.emplace_back(random_.chance(20) ? 0 : random_.below(3000), static_cast<std::byte>(random_.next()));
    }
    if (*party.comm && party.comm->all_gather_bytes(values[to_size(party.comm->rank())]) != values) {
      throw std::runtime_error("all_gather_bytes: wrong bytes");
    }
  }

  // One call, or several that are under way together.
  void calls(const Party& party) {
    const Style style = draw_style();
    const bool together = style == Style::async || style == Style::group;
    std::vector<Step> steps(together ? 1 + random_.below(4) : 1);
    for (Step& step : steps) step = draw_step(random_, static_cast<int>(party.members.size()), style);
    if (!*party.comm) return;
    std::string text;
    for (const Step& step : steps) text += (text.empty() ? "" : "; ") + describe(step);
    try {
      run(*party.comm, steps, style);
    } catch (const std::exception& error) {
      throw std::runtime_error("rank " + std::to_string(party.comm->rank()) + " of " +
                               std::to_string(party.members.size()) + ", " + text + ": " + error.what());
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
  std::vector<std::unique_ptr<Party>> parties_;
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
