// SPDX-License-Identifier: Apache-2.0
#include "runtime/place_store.hpp"

#include "comm/base/log.hpp"

namespace rondo::runtime {

// The server that says who is lost names a rank; an error without one is about the server. Each turn joins another one,
// by the deadline, and tells it what the last one knew of this rank: some may have heard its answer, others ask again.
Survived PlaceStore::survivors(std::string_view name, int index, std::span<const int> members, const Doubt& doubt,
                               Deadline deadline) {
  for (;;) {
    const auto met = now();
    try {
      return met->client->survivors(name, index, members, doubt, deadline);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::peer_lost || error.culprit() >= 0) throw;
      log::info("{}; the survivors meet where rank 0 was met", error.what());
    }
    auto next = std::make_shared<Met>(again_(deadline));
    try {
      next->client->tell_of(*met->client, deadline);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::peer_lost) throw;
      log::info("{}; another one is looked for", error.what());
      continue;  // with what is still to be told
    }
    const std::lock_guard lock(mutex_);
    met_ = std::move(next);
  }
}

}  // namespace rondo::runtime
