// SPDX-License-Identifier: Apache-2.0
// What a rank of a simulated job has, and what it has seen.
#pragma once
#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/rendezvous/simulation.hpp"

namespace rondo::rendezvous::test {

struct Comm {
  std::string name{"world"};
  std::uint32_t generation = 0;
  std::vector<int> job_ranks{};
  int rank = 0, step = 0;
  std::string growth{};                   // in doubt: this rank does not know whether all have it
  std::shared_ptr<const Comm> smaller{};  // then: what grew into it; null: this is what grew, and has given it up
  std::string key() const { return fmt::format("{}@{}", name, generation); }
};

// What one rank has seen.
struct Life {
  std::map<std::string, std::vector<int>> made{}, decided{};  // job ranks of communicators, by key
  std::string log{}, last_words{};                            // why it ended; empty: it went all the way
  milliseconds first{0};                                      // that it made connections for its first communicator
  int blamed = -1;                                            // for failing at that
  milliseconds longest{0};                                    // that it was growing or shrinking, with whom it met
  std::string longest_what{};
  std::set<int> job_ranks{};                   // one for each time that it was let in; the latest is job_rank
  std::set<std::string> grown{}, not_grown{};  // of growths in doubt: with, and without which its survivors went on
  int job_rank = -1, shrinks = 0, growths = 0, failed_growths = 0, taken_back = 0, tries = 0;
  bool ended = false, failed_at_first = false;
};

}  // namespace rondo::rendezvous::test
