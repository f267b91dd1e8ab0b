// SPDX-License-Identifier: Apache-2.0
// What each share of a collective over reachable buffers moves.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "comm/node/policy/thresholds.hpp"
#include "comm/node/rings/sweep.hpp"
#include "comm/node/ways/zero_copy.hpp"

namespace rondo::comm {
namespace {

using threshold::kStepInPlace;
using threshold::kStepMultiplied;

// Moves pointers to bytes `to` of what they pointed to bytes `at` of.
template <class Pointer>
void turn_to(std::vector<Pointer>& pointers, std::size_t at, std::size_t to) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  for (Pointer& pointer : pointers) pointer = static_cast<Byte*>(pointer) + static_cast<std::ptrdiff_t>(to - at);
}

}  // namespace

void ZeroCopy::do_share(const Move& move, int whose) {
  in_.clear();
  out_.clear();
  switch (move.call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduce(move, whose);
    case Collective::reduce_scatter:
      for (int i = 0; i < size_; ++i) in_.push_back(move.send_of(i, move.block(whose).offset));
      out_.push_back(move.recv_of(whose, 0));
      return fold(move, move.call.count);
    case Collective::broadcast:
      return broadcast(move, whose);
    case Collective::all_gather:
    case Collective::all_gather_v:
      return all_gather(move, whose);
    case Collective::gather:
    case Collective::gather_v:
      return gather(move, whose);
    case Collective::scatter:
    case Collective::scatter_v:
      return copy_with_root(move, whose);
    case Collective::all_to_all:
      return all_to_all(move, whose);
    case Collective::all_to_all_v:  // BoardCounted's
    case Collective::send:          // links'
    case Collective::recv:
    case Collective::barrier:  // has no buffers
      return;
  }
}

void ZeroCopy::reduce(const Move& move, int whose) {
  const Range mine = kernels::part({0, move.call.count}, move.shares, whose);
  for (int i = 0; i < size_; ++i) in_.push_back(move.send_of(i, mine.offset));
  for (int i = 0; i < size_; ++i) {
    const int to = whose + i < size_ ? whose + i : whose + i - size_;
    if (move.call.collective == Collective::all_reduce || to == move.call.root)
      out_.push_back(move.recv_of(to, mine.offset));
  }
  fold(move, mine.count);
}

// In parts, so that the root works too, where it reaches the others.
void ZeroCopy::broadcast(const Move& move, int whose) {
  if (!move.way.pushes) return copy(move, move.recv_of(whose, 0), move.send_of(move.call.root, 0), move.call.count);
  const Range mine = kernels::part({0, move.call.count}, move.shares, whose);
  in_.push_back(move.send_of(move.call.root, mine.offset));
  for (int i = 0; i < size_; ++i) out_.push_back(move.recv_of((whose + i) % size_, mine.offset));
  spread(move, mine.count);
}

// A block to everybody, which reads it once; or everybody's block from them.
void ZeroCopy::all_gather(const Move& move, int whose) {
  if (move.way.pushes) {
    return in_halves(
        move, whose, [&](int i) { return move.block(i).count; },
        [&](int of_rank, Range part) {
          in_.assign({move.send_of(of_rank, part.offset)});
          out_.clear();
          for (int i = 0; i < size_; ++i)
            out_.push_back(move.recv_of((whose + i) % size_, move.block(of_rank).offset + part.offset));
          spread(move, part.count);
        });
  }
  for (int i = 0; i < size_; ++i) {
    const int from = (whose + (move.backwards ? size_ - 1 - i : i)) % size_;
    copy(move, move.recv_of(whose, move.block(from).offset), move.send_of(from, 0), move.block(from).count);
  }
}

void ZeroCopy::gather(const Move& move, int whose) {
  if (move.way.pushes) return copy_with_root(move, whose);
  for (int i = 0; i < size_ && whose == move.call.root; ++i)
    copy(move, move.recv_of(whose, move.block(i).offset), move.send_of(i, 0), move.block(i).count);
}

void ZeroCopy::copy_with_root(const Move& move, int whose) {
  const bool gathers = move.row.recv_at_root;
  const auto count_of = [&](int i) { return i == move.call.root && root_in_place(move) ? 0 : move.block(i).count; };
  in_halves(move, whose, count_of, [&](int i, Range part) {
    std::byte* const into = gathers ? move.recv_of(move.call.root, move.block(i).offset) : move.recv_of(i, 0);
    const std::byte* const from = gathers ? move.send_of(i, 0) : move.send_of(move.call.root, move.block(i).offset);
    copy(move, into + part.offset * move.element, from + part.offset * move.element, part.count);
  });
}

// The block of that rank; of two ranks of which one has much less to do, as a root whose own block lies in place, a
// half of both blocks.
template <class Count, class Part>
void ZeroCopy::in_halves(const Move& move, int whose, Count count_of, Part do_part) {
  if (size_ != 2 || !move.way.shared) return do_part(whose, {0, move.block(whose).count});
  const std::size_t first = count_of(0), second = count_of(1);
  if (!chooser_.in_halves(first, second, move.element)) return do_part(whose, {0, move.block(whose).count});
  const Range half = kernels::part({0, first + second}, size_, whose);
  const std::size_t end = half.offset + half.count;
  if (half.offset < first) do_part(0, {half.offset, std::min(end, first) - half.offset});
  if (end > first) do_part(1, {std::max(half.offset, first) - first, end - std::max(half.offset, first)});
}

void ZeroCopy::all_to_all(const Move& move, int whose) {
  for (int i = 0; i < size_; ++i) {
    const int peer = (whose + (move.backwards ? size_ - 1 - i : i)) % size_;
    const int from = move.way.pushes ? whose : peer, to = move.way.pushes ? peer : whose;
    copy(move, move.recv_of(to, move.block(from).offset), move.send_of(from, move.block(to).offset),
         move.block(to).count);
  }
}

// What goes where an input was is in the caches already.
void ZeroCopy::fold(const Frame& frame, std::size_t count) {
  const auto is_input = [&](void* out) { return std::find(in_.begin(), in_.end(), out) != in_.end(); };
  const bool in_caches = std::all_of(out_.begin(), out_.end(), is_input);
  const double divisor = frame.call.op == ReduceOp::average ? size_ : 1.0;
  const std::size_t step = (frame.scales ? kStepMultiplied : kStepInPlace) / frame.element;
  std::size_t at = 0;
  for (const Range now : Sweep(count, step, frame.backwards)) {
    team_.failure().check();
    turn_to(in_, at, now.offset * frame.element);
    turn_to(out_, std::exchange(at, now.offset * frame.element), now.offset * frame.element);
    const kernels::FoldJob job{.out = out_.data(),
                               .outputs = static_cast<int>(out_.size()),
                               .in = in_.data(),
                               .inputs = size_,
                               .count = now.count,
                               .divisor = divisor,
                               .stores = in_caches ? kernels::Stores::plain : frame.stores};
    if (frame.scales) {
      fold_scaled(frame, job);
    } else {
      kernels::fold(frame.call.dtype, frame.call.op, job);
    }
  }
}

// As if every rank had published its products: rounded to the type, then added.
void ZeroCopy::fold_scaled(const Frame& frame, const kernels::FoldJob& job) {
  scratch_.resize(as_size(size_) * kStepMultiplied);
  std::vector<const void*> products;
  for (int i = 0; i < size_; ++i) {
    std::byte* product = scratch_.data() + as_size(i) * kStepMultiplied;
    kernels::find_multiply(frame.call.dtype)(product, job.in[i], job.count, told_[as_size(i)].said);
    products.push_back(product);
  }
  kernels::FoldJob sum = job;
  sum.in = products.data();
  kernels::fold(frame.call.dtype, frame.call.op, sum);
}

void ZeroCopy::spread(const Frame& frame, std::size_t count) {
  const auto* const from = static_cast<const std::byte*>(in_.front());
  std::erase(out_, from);
  std::size_t at = 0;
  for (const Range now : Sweep(count * frame.element, kStepInPlace, frame.backwards)) {
    team_.failure().check();
    turn_to(out_, std::exchange(at, now.offset), now.offset);
    kernels::copy_to_all(out_, from + now.offset, now.count, frame.stores);
  }
}

void ZeroCopy::copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes, kernels::Stores stores,
                          bool backwards) const {
  if (into == from) return;
  for (const Range now : Sweep(bytes, kStepInPlace, backwards)) {
    team_.failure().check();
    kernels::copy(into + now.offset, from + now.offset, now.count, stores);
  }
}

}  // namespace rondo::comm
