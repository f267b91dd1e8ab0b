// SPDX-License-Identifier: Apache-2.0
// The rendezvous server, embedded: sockets and timers around the protocol core, on one thread of its own that touches
// nothing else. It serves from the constructor's return to the destructor's call.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/export.hpp>

#include "comm/base/fork.hpp"
#include "comm/base/pulse.hpp"
#include "rendezvous/secret.hpp"

namespace rondo::rendezvous {

// What one server takes from strangers; every excess ends in a refusal that says so.
struct Limits {
  std::size_t unauthenticated_connections = 1024;  // at most: strangers have a quarter of what descriptors are left
  std::chrono::milliseconds authenticate_within{5000};
  std::chrono::milliseconds evict_after{250};  // who knows the secret gives way at this age when there are many
  std::size_t store_bytes = std::size_t{256} << 20;
  // Members of a server that was at this address before; then they count as lost. As long as a lease.
  std::chrono::milliseconds come_back_within =
      std::max<std::chrono::milliseconds>(std::chrono::seconds(10), 4 * given_link_patience());
};

struct ServerOptions {
  std::vector<std::string> bind{"127.0.0.1"};  // numeric addresses or names; a wildcard only when asked for
  std::uint16_t port = 0;                      // 0: any free one, the same for every address
  std::optional<Secret> secret{};              // nullopt: everybody may join; logged
  bool encrypted = false;                      // by TLS, and clients must want it, too; invalid_argument without secret
  std::string job{};                           // at most 128 bytes
  int world_size = -1;                         // -1: the first join decides
  bool is_rank_0s = false;                     // it ends with rank 0's communicator: see NotYet
  std::string starter{};                       // whose child rank 0 is, for who comes later; empty: not told
  Limits limits{};
  std::chrono::milliseconds link_patience = given_link_patience();
};

class RONDO_API Server {
 public:
  explicit Server(ServerOptions options);  // throws when an address cannot be bound
  ~Server();                               // bounded; closes every connection
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  // Until nobody but this process's own client is connected, at most so long: others may still ask why they fail.
  void wait_for_others(std::chrono::milliseconds patience) const;

 private:
  class Impl;
  OfThisProcess<Impl> impl_;
};

}  // namespace rondo::rendezvous
