// SPDX-License-Identifier: Apache-2.0
// As whose members, and under what name, the ranks of a failed communicator ask who has survived.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/setup/bootstrap.hpp"

namespace rondo::comm {

struct Lineage {
  std::string name{};
  std::uint32_t generation = 0;
  std::vector<int> job_ranks{};
  int decided = 0;  // how often its survivors have; that makes the next try's name
  std::string next_name() const { return decided > 0 ? name + '~' + std::to_string(decided) : name; }
  std::string next_key() const { return next_name() + '@' + std::to_string(generation + 1); }
};

// A communicator's, and that of the one that grew into it, while it is not known whether all members have it.
class Ancestry {
 public:
  explicit Ancestry(const Bootstrap& own)
      : own_{.name = own.name, .generation = own.generation, .job_ranks = own.job_ranks} {}

  const Lineage& own() const { return own_; }
  void count_decision() { ++own_.decided; }

  // This is the larger communicator, and maybe not everybody's.
  void doubt(const std::string& growth, Lineage smaller) {
    growth_ = growth;
    smaller_ = std::move(smaller);
  }
  // This is the smaller one, and goes on without that growth.
  void give_up(const std::string& growth) { growth_ = growth; }
  Doubt doubt() const {
    if (!smaller_) return {.growth = growth_};
    return {
        .growth = growth_, .instead = smaller_->next_key(), .members = static_cast<int>(smaller_->job_ranks.size())};
  }
  // Its ranks are the first of these.
  void become_smaller() {
    if (smaller_) own_ = *std::exchange(smaller_, std::nullopt);
  }

 private:
  Lineage own_;
  std::optional<Lineage> smaller_{};
  std::string growth_{};
};

}  // namespace rondo::comm
