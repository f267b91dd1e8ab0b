// SPDX-License-Identifier: Apache-2.0
#include "comm/board/short_calls.hpp"

#include <algorithm>
#include <numeric>

namespace rondo::comm {
namespace {

// Bytes of a block; of one for each rank in all, of which a reader takes its own alone.
constexpr std::size_t kMostOfTwo = 16 << 10, kMostOfMany = 1 << 10, kMostOfParts = 4 << 10;
// Where two ranks share a core, from here on an exchange keeps the order of their turns; with more of them every one,
// and a barrier always.
constexpr std::size_t kLeastInOrder = 4 << 10;
constexpr std::size_t kMostBehindOfTwo = 2 << 10;  // from or to a root; others: Board::kMostBehind
constexpr std::size_t kMostUnweighed = 2 << 10;    // see StoreChoice; shorter ones are in time however far

// Bytes that a rank brings where ranks take turns on cores: every crossing more costs them a switch each.
constexpr std::size_t most_of_crowd(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:  // longer ones are summed once for all
      return 2 << 10;
    case Collective::all_gather:
    case Collective::all_gather_v:
      return 8 << 10;
    case Collective::broadcast:
    case Collective::all_to_all:
      return 32 << 10;
    case Collective::gather:
    case Collective::gather_v:
    case Collective::scatter:
    case Collective::scatter_v:
      return 64 << 10;
    case Collective::reduce:
      return 128 << 10;
    default:  // each rank reads but a part
      return 512 << 10;
  }
}
static_assert(std::max({kMostOfTwo, kMostOfMany, kMostOfParts, kMostBehindOfTwo, Board::kMostBehind}) <=
              Arrival::kBody);

// Readings of the clock before the first look: where what is summed lies behind the arrivals; where the only
// other rank writes there.
constexpr int kHeldBackBehind = 3, kHeldBackFromOne = 4;

// Looks at a broadcast's root on another core before a rank's own core is given away, which takes about as long.
constexpr int kPollsForRoot = 100;

// Elements of the longest block, and that whoever brings most brings.
struct Lengths {
  std::size_t longest, brought;
};

Lengths lengths_of(const Call& call, int ranks) {
  const auto counts = counts_of(call);
  const bool has_parts = row_of(call.collective).send != Extent::one;  // one for each rank is sent
  if (counts.empty()) return {call.count, call.count * (has_parts ? as_size(ranks) - 1 : 1)};
  const std::size_t longest = *std::ranges::max_element(counts);
  if (!has_parts) return {longest, longest};
  return {longest, std::accumulate(counts.begin(), counts.end(), std::size_t{0}) - counts[as_size(call.root)]};
}

// Who awaits a rank's arrival.
int reader_of(const CollectiveRow& row, int root, bool at_root) {
  if (row.recv_at_root) return root;
  return row.send_at_root && !at_root ? Board::kNobody : Board::kEverybody;
}

// Everybody brings, and everybody takes from everybody.
bool exchanges(const CollectiveRow& row) { return row.send != Extent::none && row.recv != Extent::none && !row.rooted; }

}  // namespace

std::size_t ShortCalls::most_of_block(Collective collective, int ranks, bool crowded) {
  const CollectiveRow& row = row_of(collective);
  if (ranks == 2 && (exchanges(row) || !crowded)) return kMostOfTwo;
  const bool has_parts = row.send == Extent::world || row.send == Extent::counts;
  const std::size_t brought = crowded ? most_of_crowd(collective) : has_parts ? kMostOfParts : kMostOfMany;
  return has_parts ? brought / as_size(ranks) : brought;
}

ShortCalls::ShortCalls(Board& board, Flow& flow, StoreChoice& stores)
    : board_(board),
      flow_(flow),
      stores_(stores),
      index_(board.index()),
      size_(board.size()),
      contributions_(as_size(size_)) {}

bool ShortCalls::takes(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  if (call.collective == Collective::send || call.collective == Collective::recv) return false;
  if (call.collective == Collective::all_to_all_v) return false;  // nobody knows what others bring
  const std::size_t most = most_of_block(call.collective, size_, board_.is_crowded());
  if (row.send != Extent::none && lengths_of(call, size_).longest > most / size_of(call.dtype)) return false;
  return !goes_to_ring(call) || larger_count(call, size_) * size_of(call.dtype) <= flow_.most_call_bytes();
}

bool ShortCalls::goes_to_ring(const Call& call) const {
  if (size_ == 2 ? hands_over(call) : !board_.is_crowded()) return false;
  const std::size_t most = board_.is_crowded() ? Board::kMostBehind : kMostBehindOfTwo;
  return lengths_of(call, size_).brought > most / size_of(call.dtype);
}

// Each of two ranks writes where it was the last to read as much.
bool ShortCalls::hands_over(const Call& call) const {
  const auto counts = counts_of(call);
  return size_ == 2 && exchanges(row_of(call.collective)) && (counts.empty() || are_even(counts[0], counts[1]));
}

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
  const std::size_t whole = plan.brought + plan.own;
  plan.part = has_parts ? as_size(index_) * plan.block : 0;
  if (!counts.empty()) lay_out(counts, has_parts, plan);
  plan.in_ring = goes_to_ring(call);
  plan.weighs = plan.brought > kMostUnweighed && !hands_over(call);
  plan.keeps = !is_empty && (plan.block != 0 || !has_parts) && (!row.recv_at_root || at_root);
  if (row.send_at_root) plan.source = call.root;
  plan.gathers = plan.keeps && !row.reduces && !row.send_at_root;
  const bool in_order = whole >= kLeastInOrder || board_.ranks_on_a_core() > 2;
  plan.yields = call.collective == Collective::barrier || (exchanges(row) && in_order);
  if (!is_empty) {  // or they meet for the meeting's sake
    const bool reads = plan.keeps && !(row.send_at_root && at_root);
    plan.awaits = !reads ? Board::kNobody : row.send_at_root ? call.root : Board::kEverybody;
    if (size_ > 2) plan.read_by = reader_of(row, call.root, at_root);
  }
  const bool two_cores = size_ == 2 && !board_.is_crowded();
  plan.leaves_early = two_cores && plan.awaits == Board::kNobody;
  if (call.collective == Collective::broadcast && board_.is_crowded()) plan.polls = kPollsForRoot;
  const bool come_together = size_ > 1 && !row.rooted && !board_.is_crowded();
  if (come_together && (row.reduces || plan.block < Board::kMostInstant)) {
    const bool sums_behind = row.reduces && plan.brought > Arrival::kPayload;
    plan.holds_back = board_.readings(sums_behind ? kHeldBackBehind : Board::kHeldBack);
  } else if (two_cores && row.rooted && plan.awaits != Board::kNobody && lies_behind(plan)) {
    plan.holds_back = kHeldBackFromOne;
  }
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
  plan.in_ring ? board_.settle() : board_.settle_own();
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
