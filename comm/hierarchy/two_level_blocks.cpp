// SPDX-License-Identifier: Apache-2.0
// The collectives on blocks, one per rank. Ranks of a node need not follow each other: every block goes to its place.
#include <algorithm>
#include <cstring>

#include "comm/hierarchy/two_level.hpp"

namespace rondo::comm {

using kernels::clip;
using kernels::input;
using kernels::output;

// Every rank sends its block to one rank of each other node; a node then shares what its ranks have received. The next
// chunk leaves before this one is shared.
void TwoLevel::all_gather() {
  const std::size_t longest = longest_block();
  turn_to({}, send(0), recv(0));
  const std::size_t step = std::min(links_.chunk_capacity(), piece_of_chunk(static_cast<std::size_t>(team_.size())));
  const auto round = [&](std::size_t offset) { return Range{offset, std::min(step, longest - offset)}; };
  moves_.clear();
  send_block(round(0));
  links_.run(moves_);
  share_blocks(nodes_.mine, round(0));
  for (std::size_t offset = 0; offset < longest; offset += step) {
    const bool more = longest - offset > step;
    moves_.clear();
    if (more) send_block(round(offset + step));
    receive_blocks(round(offset));
    links_.run(moves_);
    for (int distance = 1; distance < nodes_.count(); ++distance) {
      share_blocks((nodes_.mine + distance) % nodes_.count(), round(offset));
    }
    if (more) share_blocks(nodes_.mine, round(offset + step));
  }
}

void TwoLevel::send_block(Range round) {
  const Range mine = clip(block(team_.rank()), round);
  for (int distance = 1; distance < nodes_.count(); ++distance) {
    const int node = (nodes_.mine + distance) % nodes_.count();
    moves_.push_back({.count = mine.count, .to = nodes_.at(node, nodes_.index), .local = input(round.offset)});
  }
}

void TwoLevel::receive_blocks(Range round) {
  const std::size_t width = nodes_.own().size();
  for (int node = 0; node < nodes_.count(); ++node) {
    if (node == nodes_.mine) continue;
    for (auto index = static_cast<std::size_t>(nodes_.index); index < nodes_.of(node).size(); index += width) {
      const int from = nodes_.of(node)[index];
      const Range theirs = clip(block(from), round);
      moves_.push_back({.count = theirs.count, .from = from, .store = output(theirs.offset)});
    }
  }
}

// Of a node's blocks, those that this node's ranks hold at a time: one each.
void TwoLevel::share_blocks(int node, Range round) {
  const std::size_t width = nodes_.own().size();
  for (std::size_t first = 0; first < nodes_.of(node).size(); first += width) {
    set_blocks(node, first, round);
    const Range mine = blocks_[static_cast<std::size_t>(nodes_.index)];
    const std::byte* from = node == nodes_.mine ? send(round.offset) : recv(mine.offset);
    on_board({.collective = Collective::all_gather_v, .send = from, .recv = recv(0), .blocks = blocks_});
  }
}

void TwoLevel::set_blocks(int node, std::size_t first, Range round) {
  blocks_.clear();
  for (std::size_t index = first; index < first + nodes_.own().size(); ++index) {
    const bool exists = index < nodes_.of(node).size();
    blocks_.push_back(exists ? clip(block(nodes_.of(node)[index]), round) : Range{});
  }
}

// Each node reduces everybody's blocks among its ranks, those of other nodes first: a sum goes from scratch straight to
// the rank whose block it is, which adds up what the nodes have. Scratch has two halves, as in reduce().
void TwoLevel::reduce_scatter() {
  turn_to({}, nullptr, recv(0));
  const std::size_t piece = piece_of_chunk(static_cast<std::size_t>(team_.size()));
  const std::size_t step = std::min({links_.chunk_capacity(), piece, call_.count});
  const std::size_t half = sums_per_chunk() * step;
  std::byte* const base = scratch(2 * half);
  std::size_t start = 0;
  for (const Range round : kernels::Rounds(call_.count, step)) {
    turn_to({}, base, recv(0));
    std::size_t at = start;
    for (int distance = 1; distance < nodes_.count(); ++distance) {
      const int node = (nodes_.mine + distance) % nodes_.count();
      for (std::size_t first = 0; first < nodes_.of(node).size(); first += nodes_.own().size(), at += step) {
        send_sum(node, first, round, at);
      }
    }
    reduce_blocks(nodes_.mine, 0, round, recv(round.offset));
    turn_to(peers_, nullptr, recv(0));
    links_.fold({.count = round.count, .local = output(round.offset), .store = output(round.offset)});
    start = half - start;
  }
}

std::size_t TwoLevel::sums_per_chunk() const {
  std::size_t sums = 0;
  for (int node = 0; node < nodes_.count(); ++node) {
    if (node != nodes_.mine) sums += (nodes_.of(node).size() + nodes_.own().size() - 1) / nodes_.own().size();
  }
  return sums;
}

void TwoLevel::send_sum(int node, std::size_t first, Range round, std::size_t at) {
  std::byte* into = scratch_.data() + at * element_;
  const std::size_t index = first + static_cast<std::size_t>(nodes_.index);
  links_.settle(into, round.count * element_);
  reduce_blocks(node, first, round, into);
  if (index >= nodes_.of(node).size()) return;
  const kernels::Move move{.count = round.count, .to = nodes_.of(node)[index], .local = input(at)};
  links_.run(std::span(&move, 1));
}

void TwoLevel::reduce_blocks(int node, std::size_t first, Range round, std::byte* into) {
  set_blocks(node, first, round);
  on_board({.collective = Collective::reduce_scatter, .send = send(0), .recv = into, .blocks = blocks_});
}

// The blocks of a node, one after the other.
void TwoLevel::pack_blocks(int node) {
  blocks_.clear();
  std::size_t end = 0;
  for (const int rank : nodes_.of(node)) {
    blocks_.push_back({end, block(rank).count});
    end += block(rank).count;
  }
}

// Where they lie in the call's buffer, or one after the other.
void TwoLevel::lay_out_own_node(bool in_place) {
  if (in_place) {
    set_blocks(nodes_.mine, 0, {0, longest_block()});
  } else {
    pack_blocks(nodes_.mine);
  }
}

std::size_t TwoLevel::elements_of(int node) const {
  std::size_t total = 0;
  for (const int rank : nodes_.of(node)) total += block(rank).count;
  return total;
}

template <class F>
void TwoLevel::for_each_packed(F f) const {
  std::size_t at = 0;
  for (int node = 0; node < nodes_.count(); ++node) {
    if (node == nodes_.mine) continue;
    for (const int rank : nodes_.of(node)) {
      f(at, block(rank));
      at += block(rank).count;
    }
  }
}

// Between nodes as one message for each.
void TwoLevel::gather() {
  find_gates();
  const bool with_root = nodes_.mine == root_node();
  lay_out_own_node(with_root);
  const bool crosses = is_gate();
  std::byte* const packed = crosses ? scratch(elements_to_cross()) : nullptr;
  on_board({.collective = Collective::gather_v,
            .send = send(0),
            .recv = with_root ? recv(0) : packed,
            .root = gate_index(),
            .blocks = blocks_});
  if (!crosses) return;
  turn_to(gates_, packed, packed);
  cross(!with_root);
  if (!with_root) return;
  for_each_packed([&](std::size_t at, Range block) {
    if (block.count != 0) std::memcpy(recv(block.offset), packed + at * element_, block.count * element_);
  });
}

void TwoLevel::scatter() {
  find_gates();
  const bool with_root = nodes_.mine == root_node();
  const bool crosses = is_gate();
  std::byte* const packed = crosses ? scratch(elements_to_cross()) : nullptr;
  if (crosses) {
    if (with_root) {
      for_each_packed([&](std::size_t at, Range block) {
        if (block.count != 0) std::memcpy(packed + at * element_, send(block.offset), block.count * element_);
      });
    }
    turn_to(gates_, packed, packed);
    cross(with_root);
  }
  lay_out_own_node(with_root);
  on_board({.collective = Collective::scatter_v,
            .send = with_root ? send(0) : packed,
            .recv = recv(0),
            .root = gate_index(),
            .blocks = blocks_});
}

// The message of a node whose blocks are all empty is a step without bytes: both ends must find out that they agree.
void TwoLevel::cross(bool sends) {
  std::vector<int> empty;
  std::size_t at = 0;
  moves_.clear();
  for (int node = 0; node < nodes_.count(); ++node) {
    const bool with_root = nodes_.mine == root_node();
    if (with_root ? node == nodes_.mine : node != root_node()) continue;
    const std::size_t count = elements_of(with_root ? node : nodes_.mine);
    if (count == 0) empty.push_back(node);
    moves_.push_back(sends ? kernels::Move{.count = count, .to = node, .local = input(at)}
                           : kernels::Move{.count = count, .from = node, .store = output(at)});
    at += count;
  }
  if (sends) links_.send_empty(empty);
  links_.run(moves_);
  if (!sends) links_.receive_empty(empty);
}

// What the gate of the root's node has of other nodes, or another gate of its own.
std::size_t TwoLevel::elements_to_cross() const {
  if (nodes_.mine != root_node()) return elements_of(nodes_.mine);
  std::size_t total = 0;
  for (int node = 0; node < nodes_.count(); ++node) total += node == nodes_.mine ? 0 : elements_of(node);
  return total;
}

}  // namespace rondo::comm
