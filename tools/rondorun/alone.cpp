// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/alone.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "comm/base/limits.hpp"
#include "rendezvous/socket.hpp"
#include "tools/rondorun/free_port.hpp"

namespace rondo::launcher {
namespace {

constexpr const char* kOwnHost = "127.0.0.1";

}  // namespace

Alone::Alone(const Options& options, std::optional<rendezvous::Secret> secret, int restarts)
    : options_(options), secret_(secret ? *std::move(secret) : rendezvous::Secret::generate()) {
  // A rank's output, its process, its error file, its record, and its connection to our server; and what we need for
  // ourselves, at least, and our own connection to it.
  reserve_descriptors(6 * static_cast<std::size_t>(options.local_size) + 7,
                      fmt::format("rondorun with {} ranks", options.local_size));
  secret_fd_ = secret_.to_memfd();
  placement_.local_size = placement_.world_size = placement_.role_world_size = options.local_size;
  placement_.master_address = kOwnHost;
  placement_.master_port = free_port();
  placement_.restarts = placement_.start = placement_.generation = restarts;
  placement_.job = options.job.empty() ? fmt::format("rondorun-{}", ::getpid()) : options.job;
  placement_.secret_fd = secret_fd_.get();
  server_ = std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.bind = {kOwnHost},
                                                                           .secret = secret_,
                                                                           .encrypted = options.encrypt,
                                                                           .job = placement_.job,
                                                                           .link_patience = options.link_patience});
  placement_.rendezvous = rendezvous::endpoint_text(kOwnHost, server_->port());
  observer_.emplace(rendezvous::Endpoint{.host = kOwnHost,
                                         .port = server_->port(),
                                         .secret = secret_,
                                         .job = placement_.job,
                                         .encrypted = options_.encrypt});
}

bool Alone::waits_to_join(int rank) {
  const auto found = replacements_.find(rank);
  return found != replacements_.end() && !observer_->joined_as(found->second);
}

// Who joined later has another number in the job than the launcher's.
bool Alone::is_missed(int rank) {
  const auto found = replacements_.find(rank);
  if (found == replacements_.end()) return observer_->is_missed(rank);
  const auto joined = observer_->joined_as(found->second);
  return !joined || observer_->is_missed(*joined);
}

}  // namespace rondo::launcher
