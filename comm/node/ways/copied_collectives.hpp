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
#include "comm/team/team.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class CopiedCollectives {
 public:
  static constexpr std::string_view kName = "single_copy";

  // All must outlive it.
  CopiedCollectives(const Team& team, const Chooser& chooser, Board& board, Claims& claims);

  void fetch(const Call& call, int peer, std::byte* into, std::uint64_t from, std::size_t bytes, bool backwards) {
    call_ = call;
    backwards_ = backwards;
    copy_slices(peer, true, into, from, bytes);
  }

  // After a meeting of all, or with the root. Where the buffers of the ranks that this one needs lie, by index:
  // addresses in their processes.
  struct Buffers {
    std::span<const std::uint64_t> send, recv;
  };
  // blocks: of the larger buffer, by index. shift: as Balance has it, of two ranks; backwards: see Sweep. Throws
  // peer_lost, with that rank as the culprit, where a process is gone.
  void run(const Call& call, std::span<const kernels::Range> blocks, Buffers buffers, int shift, bool backwards);
  // After run(): waits for those who still use this rank's buffers. True: it had something left to add, and has.
  bool finish();

 private:
  static constexpr std::size_t kStripBytes = 256 << 10;  // of what is summed: a cache of the core holds it
  struct Stretch {                                       // of two buffers, in elements
    std::size_t send_at = 0, recv_at = 0, count = 0;
  };
  void reduce_by_two();
  void all_reduce_by_two();
  void sum(kernels::Range bytes);
  void fold(const void* own, const void* theirs, void* into, std::size_t bytes) const;
  std::byte* strip() {
    strip_.resize(kStripBytes);
    return strip_.data();
  }
  void exchange(int other, Stretch stretch, Stretch theirs);
  void move(int from, int to, Stretch stretch, int parts);
  bool share(std::size_t count) const { return chooser_.both_copy(count * element_); }  // a block of so many elements
  int shifted(int parts, int by) const;  // what that rank does of such a block
  void keep(Stretch stretch) const;
  void copy_slices(int peer, bool pulls, std::byte* here, std::uint64_t there, std::size_t bytes) const;
  static std::size_t part_of(std::size_t bytes, int parts);  // whole pages, but for all of it

  const Team& team_;
  Board& board_;
  Claims& claims_;
  const Chooser& chooser_;
  const int index_, size_;
  Call call_{};
  std::size_t element_ = 1;
  Buffers buffers_{};
  std::vector<std::byte> strip_;        // of the other's input, then of sums that it gets
  const std::byte* fetched_ = nullptr;  // the other's input, to be added at the end
  kernels::Stores own_stores_{};
  int shift_ = 0;
  bool backwards_ = false;  // see Sweep
};

}  // namespace rondo::comm
