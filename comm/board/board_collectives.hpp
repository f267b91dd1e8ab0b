// SPDX-License-Identifier: Apache-2.0
// The collectives among ranks that share memory, over the board: every rank publishes what others need, all meet, and
// each reads from all. Reductions add in rank order, so the bits depend on values and ranks alone. Messages beyond a
// chunk go chunk by chunk: a rank publishes the next one before it reads this one, so there is one meeting per chunk.
// Roots, blocks and counts are those of the ranks that share the segment, by their index there (see Board).
#pragma once
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/board/board.hpp"
#include "comm/board/rings.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::comm {

class BoardCollectives {
 public:
  BoardCollectives(Team& team, const Config& config);

  static constexpr std::string_view kName = "board";
  // All ranks of the team share the segment. They agree on the answer. all_to_all_v has shapes that only pairs know of;
  // messages are not collectives.
  bool takes(const Call& call) const;
  void note(const Signature& signature) { board_.note(signature); }  // see Board
  void run(const Call& call, std::chrono::milliseconds timeout) {
    begin(timeout);
    run(call);
  }
  // The parts of a larger collective, the one noted last: begin(), then any number of them. `blocks`: where each rank's
  // block of the larger buffer lies, for collectives that have such blocks; by default one after the other.
  bool fits(int ranks) const { return capacity() >= 2 * kLine * static_cast<std::size_t>(ranks); }  // of a node
  void begin(std::chrono::milliseconds timeout) { board_.begin(timeout); }
  void run(const Call& call, std::span<const kernels::Range> blocks = {});

 private:
  using Range = kernels::Range;
  struct Place {                // of every rank, for one meeting
    std::size_t offset = 0;     // in the rings
    std::uint64_t meeting = 0;  // not 0: a few bytes, in that meeting's arrival lines
  };
  Place reserve(std::size_t bytes);  // at most capacity() for all places of a meeting together
  std::size_t capacity() const { return rings_.capacity() / 2; }
  std::byte* at(int index, Place place) const;

  template <class Publish, class Consume>
  void stream(std::size_t count, std::size_t step, Publish publish, Consume consume);
  std::size_t step_for(std::size_t pieces) const;  // elements of a chunk of which a meeting publishes so many

  void reduce(bool everywhere);
  void reduce_at_once(bool keeps);
  void reduce_in_parts(bool keeps);
  void reduce_scatter();
  void broadcast();
  void exchange_blocks();
  void gather_blocks(bool everywhere);
  void scatter_blocks();

  void publish(Place place, const std::byte* from, Range range, std::size_t first = 0);
  void fold(std::byte* into, std::size_t count);  // contributions_
  Range block(int of) const;                      // of the larger buffer, which holds one per rank
  std::size_t longest_block() const;
  std::span<const std::size_t> counts() const;
  void copy_block(std::byte* into, const std::byte* from, std::size_t count) const;
  const std::byte* send(std::size_t element) const {
    return static_cast<const std::byte*>(call_.send) + element * element_;
  }
  std::byte* recv(std::size_t element) const { return static_cast<std::byte*>(call_.recv) + element * element_; }

  Team& team_;
  Board board_;
  Rings rings_;
  int rank_, size_;  // index and number in the segment
  Call call_{};
  std::size_t element_ = 1;
  bool scales_ = false;                     // this call multiplies what it publishes
  std::vector<const void*> contributions_;  // by rank
  std::vector<std::size_t> offsets_;        // of blocks of variable length
  std::span<const Range> blocks_;
};

}  // namespace rondo::comm
