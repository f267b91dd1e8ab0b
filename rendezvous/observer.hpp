// SPDX-License-Identifier: Apache-2.0
// Who watches a job without being a member of it: which of its ranks the others go on without.
#pragma once
#include <memory>
#include <utility>

#include "rendezvous/client.hpp"

namespace rondo::rendezvous {

class Observer {
 public:
  explicit Observer(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  // Survivors have agreed to go on without that rank of the job. Connects when it is first asked, within a second;
  // throws Error.
  bool is_missed(int rank);

 private:
  Endpoint endpoint_;
  std::shared_ptr<Client> client_;
};

}  // namespace rondo::rendezvous
