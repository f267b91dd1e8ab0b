// SPDX-License-Identifier: Apache-2.0
// What a rank says when it joins, and what it learns.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <rondo/error.hpp>

#include "comm/base/pulse.hpp"
#include "comm/setup/recruiter.hpp"

namespace rondo::rendezvous {

struct JoinRequest {
  int rank = -1;        // -1: assigned, ranks of one node in a row
  int world_size = -1;  // must be the same everywhere; -1: the server's
  int local_rank = -1;  // -1: by order of rank on the node; all of a node or none
  std::string node{};   // equal for ranks that share memory; empty: found out from this machine
  std::string host{};   // for messages; empty: this machine's name
  int pid = 0;          // for messages; 0: this process
  // Where rank 0 can be reached by the user's own program; empty: the address its connection came from.
  std::string master_address{};
  std::uint16_t master_port = 0;
  std::uint32_t generation = 0;  // of the launcher's restarts; the highest one joins, lower ones are refused
  // Of the process: a further join under the same non-empty name shares the place of the first. Empty: of the client.
  std::string instance{};
  bool again = false;  // a member of this job at an earlier server, which is gone
  // A member that says nothing for this long counts as lost; the client says something four times as often. 0: never.
  std::chrono::milliseconds lease =
      std::max<std::chrono::milliseconds>(std::chrono::seconds(10), 4 * given_link_patience());
  // Is no rank of the round, and waits until a communicator that grows takes it in; rank and sizes are not looked at.
  bool enlists = false;
  std::string release{};       // of the library, where it enlists; empty: this one
  std::string calls_itself{};  // there: by what whoever started it knows it, as joined_key() says; empty: nobody asks
};

// For sentences: "rank 3", "a joining process".
std::string who_meets(const JoinRequest& request);

// A member came again before rank 0 did, to a server that is rank 0's own: it may be about to end. Later, there or
// elsewhere, rank 0 makes another world.
struct NotYet : Error {
  using Error::Error;
};

struct Membership {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;
  int node = 0, nodes = 1;
  std::string master_address;
  std::uint16_t master_port = 0;
  std::uint32_t generation = 0;
  bool of_rank_0 = false;  // the server is, and ends with rank 0's communicator
  Growth growth{};         // where it has enlisted: the communicator that rank and world_size are of
  int job_world_size = 1;  // of the job's round
};

}  // namespace rondo::rendezvous
