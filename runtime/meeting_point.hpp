// SPDX-License-Identifier: Apache-2.0
// A place where ranks look for rank 0's server, and what rank 0 holds there. One row of README's table each.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/base/fork.hpp"
#include "comm/transport/lookout.hpp"
#include "rendezvous/client.hpp"
#include "rendezvous/server.hpp"

namespace rondo::runtime {

// Rank 0's, as long as one of its communicators that met there lives: whoever comes later finds the place taken.
struct Hosting {
  rendezvous::Endpoint endpoint{};
  std::unique_ptr<rendezvous::Server> server{};
  std::shared_ptr<void> claim{};  // goes before the server
  Origin origin{};                // a forked child hosts nothing of its parent's
};

class MeetingPoint {
 public:
  virtual ~MeetingPoint() = default;
  virtual std::string key() const = 0;  // equal for equal places
  // In rank 0: takes the place and serves; null when another process has it. Does not wait.
  virtual std::shared_ptr<Hosting> try_host(int world_size) = 0;
  // Who serves there, or nothing and the reason. An error is the last word.
  virtual std::optional<rendezvous::Endpoint> find(std::string& reason, Store::Deadline deadline) = 0;
  // Whether what find() says may be of a run that is dead: then a failure to connect is not the last word.
  virtual bool may_be_stale() const = 0;
  // Who has the place and does not serve, for the end of a sentence; empty: not known.
  virtual std::string holder() const { return {}; }
  virtual std::string describe() const = 0;  // "the file /tmp/x"

  // A job that takes its place again keeps its secret, by which its ranks know each other.
  void keep_secret(const std::optional<rendezvous::Secret>& secret) { kept_ = secret; }

 protected:
  rendezvous::Secret secret_of_job() const { return kept_ ? *kept_ : rendezvous::Secret::generate(); }

 private:
  std::optional<rendezvous::Secret> kept_{};
};

struct Met {
  std::shared_ptr<Hosting> hosting;  // null: of another process
  std::shared_ptr<rendezvous::Client> client;
  rendezvous::Endpoint endpoint;
  rendezvous::Membership membership;
};
// Hosts the place in rank 0 where nobody does, and joins whoever serves there. timeout error at the deadline, naming
// what was in the way; the server's refusals (rendezvous::Client::join) at once.
// lookout: as Lookout says.
Met meet_at_point(MeetingPoint& point, const rendezvous::JoinRequest& request, Store::Deadline deadline,
                  const Lookout& lookout = {});

}  // namespace rondo::runtime
