// SPDX-License-Identifier: Apache-2.0
#include "comm/board/short_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace rondo::comm {
namespace {

using Cell = Arrival::Cell;

template <class Word>
std::size_t copy_words(std::byte* into, const std::byte* from, std::size_t at, std::size_t bytes) {
  for (; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
    std::memcpy(into + at, from + at, sizeof(Word));
    std::atomic_signal_fence(std::memory_order_seq_cst);  // or the compiler makes a memcpy of the loop
  }
  return at;
}

// From the first byte to the last. memcpy may write the end of a cell before its middle, and who waits for the flag
// there may take that line away before the flag is written.
void copy_ascending(std::byte* into, const std::byte* from, std::size_t bytes) {
  struct Block {
    std::uint64_t words[2];
  };
  std::size_t at = copy_words<Block>(into, from, 0, bytes);
  at = copy_words<std::uint64_t>(into, from, at, bytes);
  at = copy_words<std::uint32_t>(into, from, at, bytes);
  copy_words<std::uint8_t>(into, from, at, bytes);
}

void bring(const ShortCalls::Plan& plan, const Call& call, std::byte* into, std::size_t at, std::size_t bytes) {
  const std::byte* from = static_cast<const std::byte*>(call.send) + at;
  if (plan.multiply != nullptr) {
    plan.multiply(into, from, bytes / plan.element, call.op.factor());
  } else {
    copy_ascending(into, from, bytes);
  }
}

}  // namespace

ShortCalls::ShortCalls(Board& board)
    : board_(board), index_(board.index()), size_(board.size()), contributions_(as_size(size_)) {}

bool ShortCalls::takes(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  if (call.collective == Collective::send || call.collective == Collective::recv) return false;
  if (row.send == Extent::counts || row.recv == Extent::counts) return false;
  const std::size_t most = Arrival::kBytes / size_of(call.dtype) / (row.send == Extent::world ? as_size(size_) : 1);
  return row.send == Extent::none || call.count <= most;
}

ShortCalls::Plan ShortCalls::plan(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  const bool at_root = index_ == call.root;
  Plan plan;
  plan.element = size_of(call.dtype);
  plan.block = row.send == Extent::none ? 0 : call.count * plan.element;
  plan.brought = plan.block * (row.send == Extent::world ? as_size(size_) : 1);
  plan.part = row.send == Extent::world ? as_size(index_) * plan.block : 0;
  plan.keeps = plan.block != 0 && (!row.recv_at_root || at_root);
  if (row.send_at_root) {
    plan.source = call.root;
    if (!at_root) plan.brought = 0;
  }
  if (plan.block != 0) {  // or they meet for the meeting's sake
    const bool reads = plan.keeps && !(row.send_at_root && at_root);
    plan.awaits = !reads ? Board::kNobody : row.send_at_root ? call.root : Board::kEverybody;
  }
  if (!row.reduces) return plan;
  plan.fold = kernels::find_fold(call.dtype, call.op);
  if (call.op == ReduceOp::average) plan.divisor = size_;
  if (call.op == ReduceOp::premultiplied_sum) plan.multiply = kernels::find_multiply(call.dtype);
  return plan;
}

// visit(piece, done): `done` bytes went before it.
template <class F>
void ShortCalls::for_pieces(std::size_t first, std::size_t bytes, F&& visit) {
  std::size_t done = 0;
  if (first < Arrival::kPayload) {
    done = std::min(bytes, Arrival::kPayload - first);
    visit(Piece{kHead, first, done}, std::size_t{0});
  }
  while (done < bytes) {
    const std::size_t at = first + done - Arrival::kPayload, start = at % Cell::kPayload;
    const std::size_t length = std::min(bytes - done, Cell::kPayload - start);
    visit(Piece{at / Cell::kPayload, start, length}, done);
    done += length;
  }
}

const std::byte* ShortCalls::await(int index, Piece piece) {
  const Arrival& arrival = board_.arrived(index);
  if (piece.cell == kHead) return arrival.payload.data() + piece.start;
  const Cell& cell = arrival.cells[piece.cell];
  board_.await(cell.meeting, index);
  return cell.payload.data() + piece.start;
}

void ShortCalls::publish(const Plan& plan, const Call& call, std::chrono::milliseconds timeout) {
  board_.begin(timeout);
  board_.settle();
  bring(plan, call, board_.next().payload.data(), 0, std::min(plan.brought, Arrival::kPayload));
  board_.post();
  if (plan.brought > Arrival::kPayload) bring_cells(plan, call);
  board_.wake();
}

void ShortCalls::bring_cells(const Plan& plan, const Call& call) {
  Cell* cell = board_.arrived(index_).cells.data();
  for (std::size_t at = Arrival::kPayload; at < plan.brought; at += Cell::kPayload, ++cell) {
    bring(plan, call, cell->payload.data(), at, std::min(plan.brought - at, Cell::kPayload));
    cell->meeting.store(board_.meeting(), std::memory_order_release);
  }
}

void ShortCalls::collect(const Plan& plan, const Call& call) {
  if (plan.awaits == Board::kEverybody) board_.await_all();
  if (plan.awaits >= 0) board_.await(plan.awaits);
  if (!plan.keeps) return;
  if (plan.fold != nullptr) return fold(plan, call);
  std::byte* into = static_cast<std::byte*>(call.recv);
  if (plan.source >= 0) return copy_from(plan.source, plan, call, into);
  for (int step = 0; step < size_; ++step) {
    const int index = (index_ + step) % size_;
    copy_from(index, plan, call, into + as_size(index) * plan.block);
  }
}

void ShortCalls::copy_from(int index, const Plan& plan, const Call& call, std::byte* into) {
  if (index == index_) {
    const std::byte* from = static_cast<const std::byte*>(call.send) + plan.part;
    if (into != from) kernels::copy(into, from, plan.block, kernels::Stores::plain);
    return;
  }
  for_pieces(plan.part, plan.block,
             [&](Piece piece, std::size_t done) { copy_ascending(into + done, await(index, piece), piece.bytes); });
}

void ShortCalls::fold(const Plan& plan, const Call& call) {
  const std::byte* own = static_cast<const std::byte*>(call.send) + plan.part;
  std::byte* into = static_cast<std::byte*>(call.recv);
  for_pieces(plan.part, plan.block, [&](Piece piece, std::size_t done) {
    for (int index = 0; index < size_; ++index) {
      const bool as_sent = index == index_ && plan.multiply == nullptr;
      contributions_[as_size(index)] = as_sent ? own + done : await(index, piece);
    }
    kernels::fold_into(plan.fold, into + done, contributions_.data(), size_, piece.bytes / plan.element, plan.divisor);
  });
}

}  // namespace rondo::comm
