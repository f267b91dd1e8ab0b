// SPDX-License-Identifier: Apache-2.0
#include "comm/hierarchy/two_level.hpp"

#include <algorithm>

#include "comm/hierarchy/thresholds.hpp"

namespace rondo::comm {

using kernels::Pattern;

TwoLevel::TwoLevel(Team& team, BoardCollectives& board, HostPrimitives& links, const Config& config)
    : team_(team), board_(board), links_(links), tuning_(config.tuning), nodes_(nodes_of(team)) {
  for (int node = 0; node < nodes_.count(); ++node) {
    leaders_.push_back(nodes_.at(node, 0));
    peers_.push_back(nodes_.at(node, nodes_.index));
  }
}

std::string_view TwoLevel::why_not(const Call& call, Determinism determinism, std::string_view wanted) const {
  if (!nodes_.nested()) return "no rank shares memory with another";
  if (!board_.fits(nodes_.most)) return "too many ranks on a node";
  const CollectiveRow& row = row_of(call.collective);
  if (row.is_message() || row.has_block_per_pair()) return "every byte crosses once as it is";
  if (row.reduces && determinism == Determinism::reproducible) {
    return "(a + b) + (c + d) is not ((a + b) + c) + d";
  }
  if (!wanted.empty()) return wanted == kTwoLevel.name ? "" : "RONDO_ALGORITHM";
  const CallShape shape = shape_of(call, team_.size());
  if (shape.pattern == Pattern::reduce) {
    return shape.bytes >= tuning_.two_level_reduce_bytes ? "" : "less than two_level_reduce_bytes";
  }
  const bool collects = shape.pattern == Pattern::gather || shape.pattern == Pattern::scatter;
  return collects && shape.bytes > tuning_.two_level_gather_bytes ? "more than two_level_gather_bytes" : "";
}

Reason TwoLevel::why(const Call& call, std::string_view named) const {
  const std::string_view why = named.empty() ? "ranks share memory within their nodes" : named;
  switch (shape_of(call, team_.size()).pattern) {
    case Pattern::all_reduce:
      return {why, "two_level_leader_bytes", tuning_.two_level_leader_bytes};
    case Pattern::reduce:
      return {why, "two_level_reduce_bytes", tuning_.two_level_reduce_bytes};
    case Pattern::gather:
    case Pattern::scatter:
      return {why, "two_level_gather_bytes", tuning_.two_level_gather_bytes};
    case Pattern::broadcast:
    case Pattern::all_gather:
    case Pattern::reduce_scatter:
    case Pattern::all_to_all:
    case Pattern::barrier:
      break;
  }
  return {why};
}

std::size_t TwoLevel::piece_of_chunk(std::size_t pieces) const {
  return std::max<std::size_t>(
      tuning_.two_level_chunk_bytes / std::min(pieces, threshold::kMostPiecesOfChunk) / element_, 1);
}

void TwoLevel::run(const Call& call, const Signature& signature, std::chrono::milliseconds timeout) {
  call_ = call;
  signature_ = signature;
  element_ = size_of(call.dtype);
  lay_out(counts_of(call), offsets_);
  board_.begin(timeout);
  links_.begin({.signature = signature}, timeout);
  if (shape_of(call, team_.size()).one_fold) {
    average_widely();
  } else {
    run_phases();
  }
  links_.finish();
}

void TwoLevel::run_phases() {
  switch (shape_of(call_, team_.size()).pattern) {
    case Pattern::all_reduce:
      all_reduce();
      break;
    case Pattern::reduce:
      reduce();
      break;
    case Pattern::broadcast:
      broadcast();
      break;
    case Pattern::all_gather:
      all_gather();
      break;
    case Pattern::reduce_scatter:
      reduce_scatter();
      break;
    case Pattern::gather:
      gather();
      break;
    case Pattern::scatter:
      scatter();
      break;
    case Pattern::all_to_all:
    case Pattern::barrier:
      barrier();
      break;
  }
}

void TwoLevel::barrier() {
  on_board({.collective = Collective::barrier});
  if (nodes_.index == 0) {
    turn_to(leaders_, nullptr, nullptr);
    run_row(Pattern::barrier, 0, 0, 0);
  }
  on_board({.collective = Collective::barrier});
}

void TwoLevel::broadcast() {
  find_gates();
  const std::size_t step = piece_of_chunk(1);
  for (const Range chunk : kernels::Rounds(call_.count, step)) {
    if (is_gate()) {
      turn_to(gates_, send(chunk.offset), recv(chunk.offset));
      run_row(Pattern::broadcast, call_.count * element_, root_node(), chunk.count);
    }
    on_board({.collective = Collective::broadcast,
              .send = recv(chunk.offset),
              .recv = recv(chunk.offset),
              .count = chunk.count,
              .root = gate_index()});
  }
}

// A node's sum waits in scratch, which is what its gate sends from: two halves, so that one may still be on its way.
void TwoLevel::reduce() {
  find_gates();
  const std::size_t step = piece_of_chunk(1);
  const bool at_root = team_.rank() == call_.root;
  std::byte* sums = is_gate() && !at_root ? scratch(2 * std::min(step, call_.count)) : nullptr;
  bool second = false;
  for (const Range chunk : kernels::Rounds(call_.count, step)) {
    std::byte* into = at_root ? recv(chunk.offset) : nullptr;
    if (sums != nullptr) {
      into = second ? sums + std::min(step, call_.count) * element_ : sums;
      links_.settle(into, chunk.count * element_);
      second = !second;
    }
    on_board({.collective = Collective::reduce,
              .send = send(chunk.offset),
              .recv = into,
              .count = chunk.count,
              .root = gate_index()});
    if (!is_gate()) continue;
    turn_to(gates_, into, into);
    run_row(Pattern::reduce, call_.count * element_, root_node(), chunk.count);
  }
}

// The last touch of an average is the links', the first touch of a premul_sum is the board's.
void TwoLevel::on_board(const BoardCall& call) {
  board_.run({.collective = call.collective,
              .send = call.send,
              .recv = call.recv,
              .count = call.count,
              .dtype = call_.dtype,
              .op = call_.op == ReduceOp::average ? ReduceOp(ReduceOp::sum) : call_.op,
              .root = call.root},
             call.blocks);
}

void TwoLevel::turn_to(std::span<const int> members, const std::byte* input, std::byte* output) {
  links_.turn_to({.signature = signature_,
                  .input = input,
                  .output = output,
                  .dtype = call_.dtype,
                  .op = call_.op == ReduceOp::premultiplied_sum ? ReduceOp(ReduceOp::sum) : call_.op,
                  .reduces = row_of(call_.collective).reduces,
                  .members = members});
}

void TwoLevel::run_row(Pattern pattern, std::size_t bytes, int root, std::size_t count) {
  const Chosen row = choose_row({.pattern = pattern, .bytes = bytes}, nodes_.count(), false, tuning_);
  comm::run_row(row, links_, {.rank = nodes_.mine, .size = nodes_.count(), .root = root, .count = count});
}

std::byte* TwoLevel::scratch(std::size_t elements) {
  if (scratch_.size() < elements * element_) scratch_.resize(elements * element_);
  return scratch_.data();
}

kernels::Range TwoLevel::block(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  if (offsets_.empty()) return {index * call_.count, call_.count};
  return {offsets_[index], counts_of(call_)[index]};
}

std::size_t TwoLevel::longest_block() const {
  std::size_t longest = 0;
  for (int rank = 0; rank < team_.size(); ++rank) longest = std::max(longest, block(rank).count);
  return longest;
}

void TwoLevel::find_gates() {
  gates_.clear();
  const int index = nodes_.index_of[static_cast<std::size_t>(call_.root)];
  for (int node = 0; node < nodes_.count(); ++node) gates_.push_back(nodes_.at(node, index));
}

}  // namespace rondo::comm
