// SPDX-License-Identifier: Apache-2.0
// Collectives of a team on several nodes: inside each node over the board, between nodes over links, so that a node
// sends and receives every byte once. Long messages go chunk by chunk: what is on its way between nodes drains from the
// sockets' buffers while the next chunk is on the board.
// The deadlock argument of the staged ones: what a rank sends in a chunk fits its links on top of what the receiver,
// who is at least at the same place, may not have taken yet; so the rank that is furthest behind can always go on.
#pragma once
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/call/algorithms.hpp"
#include "comm/call/host_primitives.hpp"
#include "comm/hierarchy/nodes.hpp"
#include "comm/node/policy/reason.hpp"
#include "comm/node/ways/board_collectives.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/algorithms/table.hpp"

namespace rondo::comm {

class TwoLevel {
 public:
  TwoLevel(Team& team, BoardCollectives& board, HostPrimitives& links, const Config& config);

  // Why it does not take a call, for the log; empty: it does. By the same values on every rank. `wanted`: as
  // config.algorithm.
  std::string_view why_not(const Call& call, Determinism determinism, std::string_view wanted) const;
  // And why it takes one. named: what configured this way by name; empty: nothing did.
  Reason why(const Call& call, std::string_view named) const;
  void run(const Call& call, const Signature& signature, std::chrono::milliseconds timeout);

 private:
  using Range = kernels::Range;

  // two_level.cpp
  void run_phases();
  void barrier();
  void broadcast();
  void reduce();
  // two_level_all_reduce.cpp
  void all_reduce();
  void all_reduce_by_leaders();
  void all_reduce_in_parts();
  void go_down(Range chunk);
  void go_across(Range chunk);
  void go_up(Range chunk);
  Range part_of(Range chunk, int index) const;
  void set_parts(Range chunk);  // blocks_: of this node's ranks
  // two_level_average.cpp
  void average_widely();
  void widen_strip(const Call& narrow, Range strip, std::byte* into) const;
  // two_level_blocks.cpp
  void all_gather();
  void send_block(Range round);
  void receive_blocks(Range round);
  void share_blocks(int node, Range round);
  void reduce_scatter();
  std::size_t sums_per_chunk() const;
  void send_sum(int node, std::size_t first, Range round, std::size_t at);
  void reduce_blocks(int node, std::size_t first, Range round, std::byte* into);
  void gather();
  void scatter();
  void cross(bool sends);
  void set_blocks(int node, std::size_t first, Range round);
  void pack_blocks(int node);
  void lay_out_own_node(bool in_place);
  std::size_t elements_of(int node) const;
  std::size_t elements_to_cross() const;
  template <class F>
  void for_each_packed(F f) const;

  // A collective among the ranks of this node; root and blocks by their index there.
  struct BoardCall {
    Collective collective;
    const std::byte* send = nullptr;
    std::byte* recv = nullptr;
    std::size_t count = 0;
    int root = -1;
    std::span<const Range> blocks{};
  };
  void on_board(const BoardCall& call);
  // From here on, links move between these ranks, one of each node, or between all where there are none; `input` and
  // `output` as the moves name them.
  void turn_to(std::span<const int> members, const std::byte* input, std::byte* output);
  // The row of the algorithm table that fits a message of so many bytes, among one rank of each node.
  void run_row(kernels::Pattern pattern, std::size_t bytes, int root, std::size_t count);
  std::byte* scratch(std::size_t elements);
  // Elements of one of so many messages into which a chunk is cut.
  std::size_t piece_of_chunk(std::size_t pieces) const;

  Range block(int rank) const;  // of the larger buffer
  std::size_t longest_block() const;
  // Who moves a node's part of a rooted collective between nodes: the root on its own, on the others who stands there
  // for its index.
  void find_gates();
  int root_node() const { return nodes_.node_of[static_cast<std::size_t>(call_.root)]; }
  int gate() const { return gates_[static_cast<std::size_t>(nodes_.mine)]; }
  int gate_index() const { return nodes_.index_of[static_cast<std::size_t>(gate())]; }
  bool is_gate() const { return gate() == team_.rank(); }
  const std::byte* send(std::size_t element) const {
    return call_.send == nullptr ? nullptr : static_cast<const std::byte*>(call_.send) + element * element_;
  }
  std::byte* recv(std::size_t element) const {
    return call_.recv == nullptr ? nullptr : static_cast<std::byte*>(call_.recv) + element * element_;
  }

  Team& team_;
  BoardCollectives& board_;
  HostPrimitives& links_;
  const Tuning tuning_;
  Nodes nodes_;
  std::vector<int> leaders_;  // the first rank of each node
  std::vector<int> peers_;    // who stands in each node for this rank's index
  Call call_{};
  Signature signature_{};
  std::size_t element_ = 1;
  std::vector<std::size_t> offsets_;  // of blocks of variable length
  std::vector<int> gates_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> wide_;  // inputs in a wider type, then the sums
  std::vector<Range> blocks_;
  std::vector<kernels::Move> moves_;
};

}  // namespace rondo::comm
