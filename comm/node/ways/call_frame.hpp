// SPDX-License-Identifier: Apache-2.0
// One call among the ranks of a node, and what follows from it for this rank: made when the call begins, and handed on
// as it is. Roots, blocks and counts are those of the ranks that share the segment, by their index there (see Board).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rondo/collective.hpp>

#include "comm/call/blocks.hpp"
#include "comm/node/memory/reach.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::comm {

struct CallFrame {
  using Range = kernels::Range;

  const Call& call;
  int index = 0, ranks = 1;                // this rank's, and how many
  std::span<const std::size_t> offsets{};  // of blocks of variable length
  std::span<const Range> blocks{};         // where they are told instead;
  std::span<const Range> recv_blocks{};    // those received, where they are others
  const CollectiveRow& row = row_of(call.collective);
  std::size_t element = size_of(call.dtype);
  bool scales = row.reduces && call.op == ReduceOp::premultiplied_sum;  // inputs, by their rank's factor

  bool at_root() const { return index == call.root; }
  // The rank so many steps after this one.
  int nth_after(int step) const { return (index + step) % ranks; }
  Range block(int of) const {  // of the larger buffer, which holds one per rank
    if (!blocks.empty()) return blocks[as_size(of)];
    if (offsets.empty()) return {as_size(of) * call.count, call.count};
    return {offsets[as_size(of)], counts_of(call)[as_size(of)]};
  }
  Range recv_block(int of) const { return recv_blocks.empty() ? block(of) : recv_blocks[as_size(of)]; }
  std::size_t longest_block() const {
    std::size_t longest = 0;
    for (int of = 0; of < ranks; ++of) longest = std::max(longest, block(of).count);
    return longest;
  }
  std::size_t larger_bytes() const {
    if (blocks.empty()) return larger_count(call, ranks) * element;
    std::size_t count = 0;
    for (const Range& block : blocks) count += block.count;
    return count * element;
  }
  // Of a rank's buffers.
  std::size_t send_bytes(int of) const { return row.send_at_root && of != call.root ? 0 : bytes_of(row.send, of); }
  std::size_t recv_bytes(int of) const { return row.recv_at_root && of != call.root ? 0 : bytes_of(row.recv, of); }
  const std::byte* send(std::size_t at) const { return static_cast<const std::byte*>(call.send) + at * element; }
  std::byte* recv(std::size_t at) const { return static_cast<std::byte*>(call.recv) + at * element; }

 private:
  std::size_t bytes_of(Extent extent, int of) const {
    return (extent == Extent::one && !counts_of(call).empty() ? block(of).count
                                                              : elements_of(call, extent, counts_of(call), ranks)) *
           element;
  }
};

// What a rank tells the others in its arrival line, before calls between buffers.
struct Told {
  Spot send, recv;
  double said = 1;         // the factor of a premultiplied sum; else how long the latest call of the kind took, us
  std::uint64_t came = 0;  // read_ticks()
};

}  // namespace rondo::comm
