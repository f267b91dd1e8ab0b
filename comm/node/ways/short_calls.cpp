// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/short_calls.hpp"

namespace rondo::comm {
namespace {

// Who awaits a rank's arrival.
int reader_of(const CollectiveRow& row, int root, bool at_root) {
  if (row.recv_at_root) return root;
  return row.send_at_root && !at_root ? Board::kNobody : Board::kEverybody;
}

}  // namespace

ShortCalls::ShortCalls(const Chooser& chooser, Board& board, Flow& flow, StoreChoice& stores)
    : chooser_(chooser),
      board_(board),
      flow_(flow),
      stores_(stores),
      index_(board.index()),
      size_(board.size()),
      contributions_(as_size(size_)) {}

ShortCalls::Plan ShortCalls::plan(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  const bool at_root = index_ == call.root, has_parts = row.send == Extent::world || row.send == Extent::counts;
  const auto counts = counts_of(call);
  const Lengths lengths = lengths_of(call, size_);
  Plan plan;
  plan.element = size_of(call.dtype);
  const bool is_empty = row.send == Extent::none || lengths.longest == 0;
  plan.block = is_empty ? 0 : (counts.empty() ? call.count : counts[as_size(index_)]) * plan.element;
  plan.own = !has_parts ? 0 : counts.empty() ? plan.block : counts[as_size(call.root)] * plan.element;
  plan.brought = is_empty ? 0 : lengths.brought * plan.element;
  plan.part = has_parts ? as_size(index_) * plan.block : 0;
  if (!counts.empty()) lay_out(counts, has_parts, plan);
  plan.keeps = !is_empty && (plan.block != 0 || !has_parts) && (!row.recv_at_root || at_root);
  if (row.send_at_root) plan.source = call.root;
  plan.gathers = plan.keeps && !row.reduces && !row.send_at_root;
  if (!is_empty) {  // or they meet for the meeting's sake
    const bool reads = plan.keeps && !(row.send_at_root && at_root);
    plan.awaits = !reads ? Board::kNobody : row.send_at_root ? call.root : Board::kEverybody;
    if (size_ > 2) plan.read_by = reader_of(row, call.root, at_root);
  }
  choose(call, plan);
  if (row.reduces) {
    plan.fold = kernels::find_fold(call.dtype, call.op);
    if (call.op == ReduceOp::average) plan.divisor = size_;
    if (call.op == ReduceOp::premultiplied_sum) plan.multiply = kernels::find_multiply(call.dtype);
  }
  const bool brings = row.send_at_root ? at_root : !row.recv_at_root || !at_root;
  if (!brings) return plan;
  plan.first = has_parts ? plan.part : row.recv == Extent::counts ? plan.block : plan.brought;
  plan.last = has_parts ? plan.brought - plan.first : 0;
  return plan;
}

void ShortCalls::choose(const Call& call, Plan& plan) const {
  const ShortChoice choice = chooser_.choose_short(
      call,
      {.block = plan.block, .awaits = plan.awaits != Board::kNobody, .ranks_on_its_core = board_.ranks_on_a_core()});
  plan.in_ring = choice.in_ring;
  plan.weighs = choice.weighs;
  plan.yields = choice.yields;
  plan.leaves_early = choice.leaves_early;
  plan.polls = choice.polls;
  plan.holds_back = choice.together ? board_.readings(choice.holds_back) : choice.holds_back;
}

// Blocks that differ lie one behind the other: in what this rank gets, or this rank's in what the root brings.
void ShortCalls::lay_out(std::span<const std::size_t> counts, bool has_parts, Plan& plan) const {
  std::size_t at = 0;
  for (int index = 0; index < size_; ++index) {
    const std::size_t bytes = counts[as_size(index)] * plan.element;
    if (!has_parts) plan.blocks.push_back({at, bytes});
    if (has_parts && index == index_) plan.part = at;
    at += bytes;
  }
}

void ShortCalls::publish(const Plan& plan, const Call& call, std::chrono::milliseconds timeout) {
  board_.begin(timeout);
  if (plan.in_ring) {
    board_.settle();
  } else {
    board_.settle_own();
  }
  bring(plan, call);
  board_.arrive(plan.read_by);
}

inline void ShortCalls::take_place(const Plan& plan) {
  if (plan.in_ring) {
    in_ring_ = flow_.reserve(plan.brought);
  } else if (plan.brought > Arrival::kPayload) {
    body_ = board_.take_body();
  }
}

inline void ShortCalls::bring(const Plan& plan, const Call& call) {
  take_place(plan);
  if (plan.first == 0 && plan.last == 0) return;
  std::byte* into = place(index_, board_.next(), plan);
  const std::byte* from = static_cast<const std::byte*>(call.send);
  const double factor = call.op.factor();
  if (plan.first != 0) write(plan, into, from, plan.first, factor);
  if (plan.last != 0) write(plan, into + plan.first, from + plan.first + plan.own, plan.last, factor);
  if (plan.weighs) stores_.wrote();
}

inline void ShortCalls::write(const Plan& plan, std::byte* into, const std::byte* from, std::size_t bytes,
                              double factor) const {
  if (plan.multiply != nullptr) return plan.multiply(into, from, bytes / plan.element, factor);
  if (!plan.weighs) return copy_(into, from, bytes);
  kernels::copy(into, from, bytes, stores_.stores(bytes));
}

void ShortCalls::copy_from(int index, const Plan& plan, const Call& call, kernels::Range block) {
  const bool own = index == index_;
  std::byte* into = static_cast<std::byte*>(call.recv) + block.offset;
  const std::byte* from = own ? static_cast<const std::byte*>(call.send) + plan.part : block_of(index, plan);
  if (into != from) copy_(into, from, block.count);
}

// A rank's own, multiplied, lies in its result: its place is the next who comes to write there, who may be another.
void ShortCalls::fold(const Plan& plan, const Call& call) {
  const void* own = static_cast<const std::byte*>(call.send) + plan.part;
  if (plan.multiply != nullptr) {
    plan.multiply(call.recv, own, call.count, call.op.factor());
    own = call.recv;
  }
  for (int index = 0; index < size_; ++index)
    contributions_[as_size(index)] = index == index_ ? own : block_of(index, plan);
  kernels::fold_into(plan.fold, call.recv, contributions_.data(), size_, call.count, plan.divisor);
}

}  // namespace rondo::comm
