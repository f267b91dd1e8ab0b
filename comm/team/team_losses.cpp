// SPDX-License-Identifier: Apache-2.0
// A rank's process is gone, or nobody hears of it any more: on the monitor's thread, except for looks.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "comm/base/log.hpp"
#include "comm/base/process_state.hpp"
#include "comm/team/team_remote.hpp"

namespace rondo::comm {
namespace {

// A process' sockets end a moment before it can be asked how it ended.
constexpr std::chrono::milliseconds kEnding{20};
// Its neighbours know how it ended; their word is mostly on its way when its connection ends. Less than
// await_verdict().
constexpr std::chrono::milliseconds kNeighbours{250}, kLookAgainAfter{1};

}  // namespace

void Team::on_exit(int peer) {
  if (!departed(peer)) declare_lost(peer, describe_end(peer, "its process ended"));
}

bool Team::has_ended(int peer) const {
  const auto& process = processes_[static_cast<std::size_t>(peer)];
  if (lost(peer) || !process) return lost(peer);
  pollfd ended{process->get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

void Team::give_up() { own_line().given_up.store(1, std::memory_order_release); }
bool Team::has_given_up(int peer) const {
  if (peer != rank() && !shares_memory(peer)) return remotes_[static_cast<std::size_t>(peer)]->given_up;
  return parts_.segment.line(placement(peer).segment_index).given_up.load(std::memory_order_acquire) != 0;
}

// Where its descriptor tells by now, the monitor does, and the number may be another process'. Its goodbye came before
// its end, but need not have been read.
void Team::look_whether_it_lives(int peer) {
  const auto& process = processes_[static_cast<std::size_t>(peer)];
  if (!process || departed(peer) || lost(peer)) return;
  const auto how = how_it_ends(placement(peer).pid);
  if (pollfd ended{process->get(), POLLIN, 0}; !how || ::poll(&ended, 1, 0) != 0) return;
  if (!shares_memory(peer)) control_->hear(peer);
  if (!departed(peer)) declare_lost(peer, "its process " + *how);
}

std::string Team::describe_end(int peer, std::string_view otherwise) const {
  const auto& process = processes_[static_cast<std::size_t>(peer)];
  if (!process) return std::string(otherwise);
  pollfd ended{process->get(), POLLIN, 0};
  if (system().poll({&ended, 1}, kEnding) <= 0) return std::string(otherwise);
  return "its process " + how_it_ended(placement(peer).pid, process->get());
}

void Team::on_loss(int peer, std::string_view reason) {
  if (processes_[static_cast<std::size_t>(peer)]) return declare_lost(peer, describe_end(peer, reason));
  if (!has_witnesses(peer)) return declare_lost(peer, reason);
  const auto wait_and_declare = [this, peer, text = std::string(reason)] {
    const auto until = system().now() + kNeighbours;
    std::unique_lock lock(answers_);
    while (!failure_.raised() && system().now() < until) system().wait(answered_, lock, kLookAgainAfter);
    lock.unlock();
    declare_lost(peer, text);
  };
  bool waits = false;
  try {
    std::call_once(accused_, [&] {
      judge_ = system().start("rondo-judge", wait_and_declare);
      waits = true;
    });
  } catch (const std::system_error& error) {
    log::debug("rank {}: {}", rank(), error.what());
  }
  if (!waits) declare_lost(peer, reason);
}

void Team::declare_lost(int peer, std::string_view reason) {
  if (shares_memory(peer))
    parts_.segment.line(placement(peer).segment_index).lost.store(1, std::memory_order_release);
  else
    remotes_[static_cast<std::size_t>(peer)]->lost = true;
  if (has_aborted(peer)) return fail(ErrorCode::peer_lost, peer, reason);  // which says who it was
  fail(ErrorCode::peer_lost, peer, fmt::format("{} is lost: {}", whole_name(peer), reason));
}

// One that goes on here after that has not ended for it: it has entered a later collective, or this rank has been
// through one, which needs all.
bool Team::has_aborted(int peer) const {
  if (peer < 0 || peer >= size() || peer == rank()) return false;
  const std::uint64_t mark = shares_memory(peer) ? parts_.segment.line(placement(peer).segment_index).aborted.load()
                                                 : remotes_[static_cast<std::size_t>(peer)]->aborted.load();
  if (mark == 0 || arrived(peer) >= mark) return false;
  const std::uint64_t own = arrived(rank());
  Signature done;
  for (std::uint64_t sequence = std::max(mark, own - std::min(own, kHistory)); sequence < own; ++sequence) {
    if (read_history(own_line().calls, sequence, done) && !row_of(done.collective).rooted) return false;
  }
  return true;
}

void Team::note_abort() {
  const std::uint64_t mark = arrived(rank()) + 1;
  own_line().aborted = mark;
  if (control_) control_->announce_abort(mark);
}

// Who hears nobody is more likely to have been cut off than all others at once; all others say the same of it.
void Team::on_silence(int peer, std::string_view reason, bool alone) {
  if (departed(peer) || lost(peer)) return;
  if (!alone) return declare_lost(peer, reason);
  for (const auto& remote : remotes_) {
    if (remote) remote->lost = true;
  }
  fail(ErrorCode::peer_lost, rank(),
       fmt::format("{} is cut off from all other hosts: of {} {}, and no other host has answered since; see to this "
                   "host's network",
                   whole_name(rank()), whole_name(peer), reason));
}

// That live and see its process.
bool Team::has_witnesses(int peer) const {
  if (!placement(peer).watched) return false;
  for (int r = 0; r < size(); ++r) {
    if (r != peer && placement(r).node == placement(peer).node && !departed(r) && !lost(r)) return true;
  }
  return false;
}

}  // namespace rondo::comm
