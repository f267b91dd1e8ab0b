// SPDX-License-Identifier: Apache-2.0
// What calls of one shape have in common, worked out once: that they are valid, their signature, and the way they go.
// Programs repeat a few shapes for ever, and working it out takes longer than a short message does. Used by the thread
// that runs the collectives.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/call/algorithms.hpp"
#include "comm/call/signature.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/ways/board_collectives.hpp"
#include "comm/node/ways/short_calls.hpp"

namespace rondo::comm {

// How a rank's buffers may lie to each other.
struct Buffers {
  std::size_t send_bytes = 0, recv_bytes = 0;  // both 0 where the rank does not use both
  std::uintptr_t in_place = 0;                 // from the one to the other; send_bytes: there is no such place

  bool admit(const Call& call) const {
    const std::uintptr_t behind =
        reinterpret_cast<std::uintptr_t>(call.recv) - reinterpret_cast<std::uintptr_t>(call.send);
    return behind == in_place || (behind >= send_bytes && -behind >= recv_bytes);
  }
};

struct PreparedCall {
  Call shape{};           // its buffers, counts and stream mean nothing
  Signature signature{};  // without its number
  std::uint64_t hash = 0;
  Way way = Way::links;
  Chosen chosen{};
  ShortCalls::Plan plan{};              // of short calls
  BoardCollectives::Counted counted{};  // of an all_to_all_v on the board
  bool asks = false;                    // each time whether it can go straight between buffers
  // The least that is left to check: which buffers must not be null, and that they do not overlap.
  bool sends = false, receives = false;
  Buffers buffers{};
  std::vector<std::size_t> counts{};  // of a _v form: those that it sends, then those that it receives
  bool prepared = false;              // something stands here
  Reason why{};                       // the way is this one

  // A call of this shape, with buffers that need no further look.
  bool is_of(const Call& call) const {
    return prepared && shape.count == call.count && shape.collective == call.collective && shape.dtype == call.dtype &&
           shape.op.kind() == call.op.kind() && shape.root == call.root &&
           call.send_counts.size() + call.recv_counts.size() == counts.size() &&
           (counts.empty() || counts_alike(call)) && (!sends || call.send != nullptr) &&
           (!receives || call.recv != nullptr) && buffers.admit(call);
  }

 private:
  // As many are.
  [[gnu::noinline]] bool counts_alike(const Call& call) const {
    const auto received = counts.begin() + static_cast<std::ptrdiff_t>(call.send_counts.size());
    return std::equal(counts.begin(), received, call.send_counts.begin()) &&
           std::equal(received, counts.end(), call.recv_counts.begin());
  }
};

class PreparedCalls {
 public:
  // Where calls of that shape are kept; is_of() says whether one is.
  PreparedCall& place(const Call& call) {
    const auto mix = call.count ^ call.count >> 8 ^ static_cast<std::size_t>(call.collective) << 2;
    return places_[mix % kPlaces];
  }

 private:
  static constexpr std::size_t kPlaces = 32;
  std::array<PreparedCall, kPlaces> places_{};
};

}  // namespace rondo::comm
