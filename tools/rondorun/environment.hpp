// SPDX-License-Identifier: Apache-2.0
// What a rank finds in its environment: the launcher's own, torchrun's names, and ours.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

// Where this node's ranks stand in the job.
struct Placement {
  int node = 0, nodes = 1;
  int first_rank = 0, local_size = 1, world_size = 1;
  int first_role_rank = 0, role_world_size = 1;  // the same, of the nodes with this one's --role
  std::chrono::milliseconds longest_grace{0};    // of all nodes
  std::string master_address;                    // for the user's own use, with a port that was free a moment ago
  std::uint16_t master_port = 0;
  std::string rendezvous;  // host:port of our server; empty: none
  std::string job;
  int secret_fd = -1;
  int restarts = 0;        // of this job so far
  int start = 0;           // which one this is: not only failures are a reason for another
  int generation = 0;      // that ranks join, higher at each start
  std::string error_file;  // of the rank in question; empty: none
  int record_fd = -1;      // the same
  std::string joins_as;    // by what we know it where it joins in the place of a lost one; empty: it does not
};

std::vector<std::string> rank_environment(const Options& options, const Placement& placement, int local_rank);

}  // namespace rondo::launcher
