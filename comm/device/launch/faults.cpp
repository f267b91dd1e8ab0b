// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/faults.hpp"

#include <fmt/format.h>

#include <atomic>

#include "comm/call/algorithms.hpp"
#include "comm/device/launch/signatures.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::Fault;
using kernels::device::FaultKind;
using kernels::device::HostPage;

std::string who(int peer, const Team& team) {
  if (peer < 0) return "the other ranks";
  const Placement& placement = team.placement(peer);
  return fmt::format("rank {} (host {}, pid {})", peer, placement.host, placement.pid);
}

// Chosen again from what the signature says; empty for messages, and where the counts were each rank's own.
std::string algorithm_of(const Fault& fault, const Signature& s, const Terms& terms) {
  const CollectiveRow& row = rondo::row_of(s.collective);
  if (row.is_message()) return "message";
  if (terms.is_level) return std::string(kTwoLevel.name);
  if (row.send == Extent::counts || row.recv == Extent::counts) {
    return fault.window ? "window" : std::string(name_of(static_cast<KernelKind>(fault.protocol)));
  }
  const Call call{.collective = s.collective, .count = s.count, .dtype = s.dtype, .op = s.op, .root = s.root};
  const Choice choice = choose(shape_of(call, terms.world_size), terms);
  return fmt::format("{}, {}", choice.algorithm, name_of(choice.kernel));
}

bool is_known(const Signature& s) { return s.sequence != 0 || s.count != 0 || s.root != 0; }

std::string called(const Signature& s) {
  if (!is_known(s)) return "something else";
  return s.sequence != 0 ? describe(s) : fmt::format("a message of {} {}", s.count, name_of(s.dtype));
}

// Messages are numbered by nobody.
std::string compare_messages(int rank, const Signature& mine, int peer, const Signature& theirs) {
  const auto differ = [&](std::string_view field, const auto& a, const auto& b) {
    return fmt::format("rank {} and rank {} disagree on the {} of a message between them: {} against {}", rank, peer,
                       field, a, b);
  };
  if (mine.dtype != theirs.dtype) return differ("dtype", name_of(mine.dtype), name_of(theirs.dtype));
  return differ("count", mine.count, theirs.count);
}

Error mismatch(const Fault& fault, const Signature& mine, Team& team) {
  const Signature theirs = unpack(fault.theirs);
  std::string sentence;
  if (mine.sequence != 0 && theirs.sequence != 0) sentence = compare(team.rank(), mine, fault.peer, theirs);
  if (mine.sequence == 0 && theirs.sequence == 0 && is_known(theirs)) {
    sentence = compare_messages(team.rank(), mine, fault.peer, theirs);
  }
  if (sentence.empty()) {
    sentence =
        fmt::format("rank {} called {} where rank {} called {}", team.rank(), called(mine), fault.peer, called(theirs));
  }
  Difference difference{.sentence = sentence, .peer = fault.peer};
  if (mine.sequence == theirs.sequence) difference.about = mine;
  difference.about.on_device = 1;
  return team.judge(difference);
}

struct Late {
  int rank = -1;  // -1: all have enqueued the call, as far as it is known
  std::string sentence{};
};

// Whom a kernel waits for may itself wait for another.
Late find_late(const Signature& mine, Team& team) {
  if (mine.sequence == 0) return {};
  Signature about = mine;
  about.on_device = 1;
  const auto standings = team.inquire(about, kInquiry);
  const auto late = comm::find_late(standings, mine.sequence);
  if (late.empty()) return {};
  const int first = late.front();
  return {first, describe_late(first, team.placement(first), standings[static_cast<std::size_t>(first)])};
}

}  // namespace

Fault read_fault(const HostPage& page) {
  const std::atomic_ref is_set(const_cast<std::uint32_t&>(page.fault.is_set));
  return is_set.load(std::memory_order_acquire) != 0 ? page.fault : Fault{};
}

std::optional<Waiting> take_waiting(HostPage& page) {
  const std::atomic_ref told(page.told);
  if (told.load(std::memory_order_acquire) == 0) return std::nullopt;
  const Waiting waiting{page.waiting_for, unpack(page.waiting)};
  told.store(0, std::memory_order_release);
  return waiting;
}

std::uint64_t still_waiting(const HostPage& page) {
  return std::atomic_ref(const_cast<std::uint64_t&>(page.still_waiting_ns)).load(std::memory_order_relaxed);
}

Error error_of(const Fault& fault, Team& team, const Terms& terms, std::chrono::milliseconds timeout) {
  const Signature mine = unpack(fault.mine);
  if (fault.kind == FaultKind::mismatch) return mismatch(fault, mine, team);
  if (fault.kind == FaultKind::overlap) {
    return {ErrorCode::invalid_argument,
            fmt::format("rank {}: two launches of this communicator ran at the same time, a graph's and another on a "
                        "stream that does not wait for it: let one wait for the other",
                        team.rank()),
            team.rank()};
  }
  const std::string waited =
      fmt::format("rank {} has waited {:.1f} s in {} for {}: channel {}, step {}, {}", team.rank(),
                  static_cast<double>(timeout.count()) / 1e3, called(mine), who(fault.peer, team), fault.channel,
                  fault.step, algorithm_of(fault, mine, terms));
  const Late late = find_late(mine, team);
  return {ErrorCode::timeout, waited + late.sentence, late.rank >= 0 ? late.rank : fault.peer};
}

Error departure_of(const Waiting& waiting, const Team& team) {
  return {ErrorCode::peer_lost,
          fmt::format("rank {} left while rank {} was waiting for it in {}", waiting.peer, team.rank(),
                      called(waiting.signature)),
          waiting.peer};
}

std::string report_of(const Waiting& waiting, const Team& team, std::chrono::milliseconds waited) {
  return fmt::format("rank {} has waited {:.1f} s in {} for {}", team.rank(), static_cast<double>(waited.count()) / 1e3,
                     called(waiting.signature), who(waiting.peer, team));
}

}  // namespace rondo::comm::device
