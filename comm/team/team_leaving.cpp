// SPDX-License-Identifier: Apache-2.0
// Team: who leaves says so, and stays until what it sent has come.
#include <algorithm>
#include <chrono>
#include <exception>

#include "comm/base/log.hpp"
#include "comm/team/team.hpp"
#include "comm/team/team_remote.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo::comm {

// Nobody can be told any more: what was left over is a line in the log.
void Team::take_leave() {
  const bool fails = failure_.raised(), told = failure_.is_known() || std::uncaught_exceptions() > 0;
  own_line().departed.store(1, std::memory_order_seq_cst);
  parts_.bells.ring_all();
  if (control_) tell_all_before_leaving();
  if (told) return;
  try {
    const std::string leftovers = fails ? find_disagreement().sentence : find_leftovers();
    if (!leftovers.empty()) log::warn("rank {} destroyed its communicator, and {}", rank(), leftovers);
  } catch (const std::exception& error) {
    log::debug("rank {}: what was left over is not known: {}", rank(), error.what());
  }
}

void Team::tell_all_before_leaving() {
  auto patience = kPatiencesToLeave * parts_.link_patience;
  int reported = -1;  // whom others lost, this rank may yet lose itself
  if (failure_.raised()) {
    pass_on_failure();  // a peer that sees this rank go may not yet have heard why
    const Error error = failure_.error();
    if (error.error_code() == ErrorCode::peer_lost) {
      reported = error.culprit();
      patience = std::chrono::milliseconds(500);  // others may be gone, too, and those that are not find out
    }
  }
  if (const Signature own = latest(Side::device); own.sequence != 0) announce_waiting(own);
  const bool closed = own_line().device_calls.arrived.load(std::memory_order_relaxed) == CallHistory::kClosed;
  for (int peer = 0; !closed && peer < size(); ++peer) {
    const Messages messages = shares_memory(peer) ? Messages{} : device_messages(peer);
    if (messages.sent + messages.received == 0) continue;
    control_->tell(
        peer, {.sequence = messages.sent, .count = messages.received, .collective = Collective::send, .on_device = 1});
  }
  control_->announce_departure(latest(Side::host), has_given_up(rank()));
  await_delivery(system().now() + patience, reported);
}

// To close a connection on which something comes in resets it, and what is under way is lost with it; and on a closed
// one the kernel gives up soon.
void Team::await_delivery(System::Time until, int excepted) {
  constexpr std::chrono::microseconds kFirstNap{20}, kLongestNap{2000};
  auto nap = kFirstNap;  // nothing wakes whoever waits for an acknowledgement
  for (int peer = 0; peer < size(); ++peer) {
    while (peer != excepted && is_owed_something(peer)) {
      if (system().now() >= until) {
        if (!failure_.raised())
          log::warn("rank {} destroyed its communicator, and what it had sent to rank {} may not have arrived", rank(),
                    peer);
        break;
      }
      system().nap(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

bool Team::is_owed_something(int peer) {
  const int control = control_->socket(peer);  // none where this rank shares memory with it, or did not meet it
  if (control < 0 || departed(peer) || lost(peer)) return false;
  const auto owes = [](const Links& links) {
    const Wake wake = links.send ? links.send->wake() : Wake{};
    return wake.by == Wake::By::descriptor && is_under_way(wake.fd);
  };
  if (is_under_way(control)) return true;
  return !failure_.raised() && (owes(links_[static_cast<std::size_t>(peer)]) || owes(message_links(peer)));
}

}  // namespace rondo::comm
