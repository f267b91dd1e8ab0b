// SPDX-License-Identifier: Apache-2.0
// One authenticated connection to a rendezvous server. Any number of threads may call; a thread of the client's own
// reads replies and keeps the lease. When the server or the connection is gone, every call throws peer_lost; but a
// member of a server that is not rank 0's waits until one is back at its address, as long as each call may take.
// In a forked child every call throws invalid_argument.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/store.hpp>

#include "comm/base/fork.hpp"
#include "comm/base/pulse.hpp"
#include "comm/setup/recruiter.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/secret.hpp"

namespace rondo::rendezvous {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  std::optional<Secret> secret{};  // nullopt: only with a server that has none either
  std::string job{};
  bool encrypted = false;  // by TLS, which the server must want, too; invalid_argument without a secret
  std::chrono::milliseconds link_patience = given_link_patience();
};

class RONDO_API Client final : public Store, public Recruiter {
 public:
  // Tries again while the name does not resolve, nobody listens or the server is busy; at the deadline the error says
  // what was in the way. Another version, job or secret is an error at once.
  static std::shared_ptr<Client> connect(const Endpoint& endpoint, Deadline deadline);
  ~Client() override;  // says goodbye; bounded

  // Waits for all ranks. At the deadline of any of them, every rank present gets the list of the missing ones; when two
  // processes claim one rank, all who wait are told. NotYet: see there. Who enlists waits to be admitted; mismatch: it
  // is of another release.
  Membership join(const JoinRequest& request, Deadline deadline);
  // Nobody leaves before all `participants` have come; same errors as exchange.
  void barrier(std::string_view name, int index, int participants, Deadline deadline);
  // What `before`, this process's client of an earlier server, would tell that one if it came back.
  void tell_of(const Client& before, Deadline deadline);
  // The address of this machine that reaches the server.
  std::string local_address() const;

  void set(std::string_view key, std::span<const std::byte> value) override;
  Bytes get(std::string_view key, Deadline deadline) override;
  std::optional<Bytes> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override;
  bool erase(std::string_view key) override;
  // One operation of the server. A participant that is lost while others wait is an error for them at once.
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override;
  std::vector<int> survivors(std::string_view name, int index, std::span<const int> members,
                             Deadline deadline) override;
  Survived survivors(std::string_view name, int index, std::span<const int> members, const Doubt& doubt,
                     Deadline deadline) override;
  void missing(std::string_view name, std::span<const int> indices) override;
  void missing(const Growth& growth, std::span<const int> members) override;
  Growth admit(std::span<const int> members, int joiners, std::uint32_t generation, Deadline deadline) override;
  void check(const Growth& growth) override;
  void check_first_ranks() override;
  void give_up(const Growth& growth, const Error& why) noexcept override;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  OfThisProcess<Impl> impl_;
};

}  // namespace rondo::rendezvous
