// SPDX-License-Identifier: Apache-2.0
// Who watches a job without being a member of it: which of its ranks the others go on without, and who has joined them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/client.hpp"

namespace rondo::rendezvous {

class Observer {
 public:
  explicit Observer(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  // Survivors have agreed to go on without that rank of the job. Connects when it is first asked, within a second;
  // throws Error.
  bool is_missed(int rank);
  // The rank of the job that a process has, which joined later and calls itself so; none: no communicator has it yet.
  std::optional<int> joined_as(const std::string& calls_itself);

 private:
  Client& client();

  Endpoint endpoint_;
  std::shared_ptr<Client> client_;
};

}  // namespace rondo::rendezvous
