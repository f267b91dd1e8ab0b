// SPDX-License-Identifier: Apache-2.0
// The ways in which ranks find their server, start one where nobody serves, and join.
#pragma once
#include <rondo/communicator.hpp>

#include "comm/setup/bootstrap.hpp"
#include "rendezvous/client.hpp"
#include "runtime/launchers/environment.hpp"

namespace rondo::runtime {

// What the ranks of a job were given to trust one another: RONDO_SECRET_FD, RONDO_SECRET_FILE or RONDO_INSECURE=1.
struct Trust {
  std::optional<rendezvous::Secret> secret;
  bool insecure = false;
  bool given() const { return secret.has_value() || insecure; }
};
// The file is for a descriptor that did not come through.
Trust read_trust(int secret_fd);

// A place to meet; the request says who we are.
struct MeetingAddress {
  std::string host;
  std::uint16_t port = 0;
  std::string job;
  bool may_serve = true;  // rank 0 serves there when nobody does
};

// Bootstrap without name: joined, and the store holds the server if it is this process's.
Bootstrap meet(const Launch& launch, const Options& options, Store::Deadline deadline);
Bootstrap meet_at(const MeetingAddress& place, const Trust& trust, const rendezvous::JoinRequest& request,
                  const Options& options, Store::Deadline deadline);
Bootstrap meet_by_file(const std::string& path, const rendezvous::JoinRequest& request, const Options& options,
                       Store::Deadline deadline);

// Whose turn it is among the worlds that this process makes of one store; the same on all ranks.
std::string next_world_name(Store& store, std::uint32_t generation, int rank);

}  // namespace rondo::runtime
