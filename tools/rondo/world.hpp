// SPDX-License-Identifier: Apache-2.0
// What the records say together of one communicator.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tools/rondo/read.hpp"

namespace rondo::records {

struct World {
  struct Member {
    int job_rank = 0;
    const Record* record = nullptr;     // none: only its neighbours know of it
    const Communicator* own = nullptr;  // in its record
    std::vector<Call> calls;            // its own, or as a neighbour knows them
    std::int64_t entered = 0;           // the latest collective that anybody knows it to have entered
    std::string state;                  // as its neighbours know it
  };
  std::string name;
  std::string failure;  // as the first rank says it
  int world_size = 1;
  std::map<int, Member> members;  // by rank in it, as far as anything is known
};
std::vector<World> worlds_of(const Folder& folder);  // the largest first

struct Divergence {
  std::int64_t sequence = 0;                      // 0: there is none
  std::map<std::string, std::vector<int>> ranks;  // by what they called
};
Divergence first_divergence(const World& world);

// Ranks that were in a collective, and for whom.
struct Wait {
  Call call;  // of the one that waited longest
  std::vector<int> waiting, missing;
  double since_us = 0, longest_us = 0;
};
std::vector<Wait> waits_of(const World& world);

struct Lateness {
  int times = 0, calls = 0;           // how often it came last, of calls that can be compared
  double median_us = 0, most_us = 0;  // how long after the one before it
};
std::map<int, Lateness> lateness_of(const World& world);  // by rank

std::string describe(const Call& call);  // "all_reduce of 1000 f32, sum"

}  // namespace rondo::records
