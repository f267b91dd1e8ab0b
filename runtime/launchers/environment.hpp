// SPDX-License-Identifier: Apache-2.0
// Which launcher started this process, and what it says. One row per launcher; to add one, write a row.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/setup/bootstrap.hpp"
#include "runtime/launchers/variables.hpp"

namespace rondo::runtime {

struct Launch {
  std::string launcher;  // the row's name
  int rank = -1, world_size = -1, local_rank = -1;
  int nodes = -1;  // -1: unknown
  // Where a server runs already; an empty host: nowhere, rank 0 serves.
  std::string server_host{};
  std::uint16_t server_port = 0;
  // Of the user's own program; without a server, rank 0 serves at this address.
  std::string master_address{};
  std::uint16_t master_port = 0;
  bool master_port_taken = false;  // by the launcher's own store: we take the next one
  std::string job{};
  std::uint32_t generation = 0;
  int secret_fd = -1;
  bool joins_later = false;    // is no rank of it: waits to be let in
  std::string calls_itself{};  // then: by what the launcher knows it; empty: none has started it for that
};

// Nothing: no launcher's variable is set, or RONDO_WORLD=one, so this is a world of one. Error(unsupported or
// invalid_argument) naming the variable and what to do when a launcher is not supported, or only half of the variables
// are there.
std::optional<Launch> read_launch(const Variables& variables);

// Where a process finds the job that it wants to join later: RONDO_RENDEZVOUS, or MASTER_ADDR and MASTER_PORT, as ranks
// of it have them; what they say of ranks is not looked at. invalid_argument: neither is set.
Launch read_place(const Variables& variables);

// What a scheduler says of a launcher that it has started once on each node.
struct NodeLaunch {
  std::string launcher{}, sign{};      // the row's name; the variable that says so, with its value
  Said<int> nodes{1}, node{-1};        // nodes 0: not said; node -1: by arrival
  int least_nodes = 0;                 // so many will do; 0: all of them
  Said<std::string> local_size{};      // of ranks, as --nproc-per-node has it; empty: not said
  Said<std::string> master_address{};  // empty: not said
  Said<std::uint16_t> master_port{};   // 0: not said
  Said<std::string> job{};             // empty: not said
};

// Nothing: no scheduler's variable is set. nodes is 1 where the scheduler started one process in all. Error(unsupported
// or invalid_argument) naming the variable when it started several and their number, or which of them this is, is not
// said, or when several are on one node.
std::optional<NodeLaunch> read_node_launch(const Variables& variables);

// The rows' names, as they are tried; one may have several rows.
std::vector<std::string> known_launchers();

// "host:port", "[::1]:port"; errors show the text with what stands before it where it is written ("tcp://").
void parse_endpoint(const std::string& text, const std::string& before, std::string& host, std::uint16_t& port);

}  // namespace rondo::runtime
