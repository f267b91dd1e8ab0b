// SPDX-License-Identifier: Apache-2.0
// Collectives over ordinary memory of processes: all have met and said where their buffers lie, and the kernel copies
// each block once, from where it is to where it belongs, for the rank that gets it or the one that has it. Of sums
// those of two ranks with a core each, which add what they have fetched. A rank's buffers are used until the ranks that
// need them have said that they are done (Claims).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/node/meeting/board.hpp"
#include "comm/node/meeting/claims.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/ways/balance.hpp"
#include "comm/node/ways/call_frame.hpp"
#include "comm/team/team.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class SingleCopy {
 public:
  static constexpr std::string_view kName = "single_copy";

  // All must outlive it.
  SingleCopy(const Team& team, const Chooser& chooser, Board& board, Claims& claims);

  void fetch(const CallFrame& call, int peer, std::byte* into, std::uint64_t from, std::size_t bytes, bool backwards) {
    copy_slices({call, {}, {}, 0, backwards}, peer, true, into, from, bytes);
  }

  // After a meeting of all, or with the root. told: by index, of the ranks that this one needs, where their buffers lie
  // in their processes. shift: as Balance has it, of two ranks; backwards: see Sweep. What is returned is to be added
  // at the end, or null. Throws peer_lost, with that rank as the culprit, where a process is gone.
  const std::byte* run(const CallFrame& call, std::span<const Told> told, int shift, bool backwards);
  // After run(): waits for those who still use this rank's buffers. True: it had something left to add, and has.
  bool finish(const CallFrame& call, const std::byte* fetched);

 private:
  struct Stretch {  // of two buffers, in elements
    std::size_t send_at = 0, recv_at = 0, count = 0;
  };
  struct Frame : CallFrame {
    std::span<const Told> told{};
    kernels::Stores own_stores{};
    int shift = 0;
    bool backwards = false;
  };
  const std::byte* reduce_by_two(const Frame& frame);
  void copy_or_sum(const Frame& frame);
  void all_reduce_by_two(const Frame& frame);
  void sum(const Frame& frame, kernels::Range bytes);
  void fold(const CallFrame& frame, const void* own, const void* theirs, void* into, std::size_t bytes) const;
  std::byte* strip();
  void exchange(const Frame& frame, int other, Stretch stretch, Stretch theirs);
  void move(const Frame& frame, int from, int to, Stretch stretch, int parts);
  bool share(const Frame& frame, std::size_t count) const {  // a block of so many elements
    return chooser_.both_copy(count * frame.element);
  }
  static int shifted(const Frame& frame, int parts, int by);  // what that rank does of such a block
  void keep(const Frame& frame, Stretch stretch) const;
  void copy_slices(const Frame& frame, int peer, bool pulls, std::byte* here, std::uint64_t there,
                   std::size_t bytes) const;
  static std::size_t part_of(std::size_t bytes, int parts);  // whole pages, but for all of it

  const Team& team_;
  Board& board_;
  Claims& claims_;
  const Chooser& chooser_;
  const int index_, size_;
  std::vector<std::byte> strip_;  // of the other's input, then of sums that it gets
};

}  // namespace rondo::comm
