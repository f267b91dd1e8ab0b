// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job on one node: its ranks meet there, and it knows whom the others go on without. Where there
// are several nodes, Nodes has this part.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/base/fd.hpp"
#include "rendezvous/observer.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/server.hpp"
#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

class Alone {
 public:
  // Makes a secret where none is given. Throws Error when the system refuses.
  Alone(const Options& options, std::optional<rendezvous::Secret> secret, int restarts);
  const Placement& placement() const { return placement_; }
  void replaces(int rank, const std::string& joins_as) { replacements_[rank] = joins_as; }
  bool waits_to_join(int rank);  // it is a replacement, and no communicator has it; throws Error, like
  bool is_missed(int rank);      // the survivors go on without it, which whoever waits to join is for them

 private:
  const Options& options_;
  rendezvous::Secret secret_;
  Fd secret_fd_;  // for the ranks
  Placement placement_;
  std::unique_ptr<rendezvous::Server> server_;
  std::optional<rendezvous::Observer> observer_;  // of it
  std::map<int, std::string> replacements_;       // by rank: what the latest joins as
};

}  // namespace rondo::launcher
