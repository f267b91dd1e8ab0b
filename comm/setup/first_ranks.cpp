// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/first_ranks.hpp"

#include <chrono>
#include <utility>

#include "comm/base/log.hpp"

namespace rondo::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions{100};

}  // namespace

Lookout look_for_lost(std::shared_ptr<Recruiter> server) {
  if (!server) return {};
  return [server = std::move(server), last = std::chrono::steady_clock::now(), tells = true]() mutable {
    const auto now = std::chrono::steady_clock::now();
    if (!tells || now - last < kBetweenQuestions) return;
    last = now;
    try {
      server->check_first_ranks();
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::unsupported) throw;
      log::warn("the rendezvous server is of an older release: who ends while the ranks meet may be named late");
      tells = false;
    }
  };
}

}  // namespace rondo::comm
