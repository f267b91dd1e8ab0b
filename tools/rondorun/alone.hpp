// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job on one node: its ranks meet there, and it knows whom the others go on without. Where there
// are several nodes, Nodes has this part.
#pragma once
#include <memory>
#include <optional>

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
  bool is_missed(int rank) { return observer_->is_missed(rank); }  // the survivors go on without it; throws Error

 private:
  const Options& options_;
  rendezvous::Secret secret_;
  Fd secret_fd_;  // for the ranks
  Placement placement_;
  std::unique_ptr<rendezvous::Server> server_;
  std::optional<rendezvous::Observer> observer_;  // of it
};

}  // namespace rondo::launcher
