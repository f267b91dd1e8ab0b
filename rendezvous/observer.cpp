// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observer.hpp"

#include <chrono>

#include "rendezvous/survivals.hpp"

namespace rondo::rendezvous {

bool Observer::is_missed(int rank) {
  constexpr std::chrono::seconds kLimit{1};
  if (!client_) client_ = Client::connect(endpoint_, std::chrono::steady_clock::now() + kLimit);
  return client_->try_get(missed_key(rank)).has_value();
}

}  // namespace rondo::rendezvous
