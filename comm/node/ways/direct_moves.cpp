// SPDX-License-Identifier: Apache-2.0
// What each share of a collective over reachable buffers moves.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "comm/node/rings/sweep.hpp"
#include "comm/node/ways/direct_collectives.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kStepBytes = 256 << 10;    // of a stream, between two looks at the communicator's failure
constexpr std::size_t kScratchBytes = 16 << 10;  // of an input that is multiplied first

// Moves pointers to bytes `to` of what they pointed to bytes `at` of.
template <class Pointer>
void turn_to(std::vector<Pointer>& pointers, std::size_t at, std::size_t to) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  for (Pointer& pointer : pointers) pointer = static_cast<Byte*>(pointer) + static_cast<std::ptrdiff_t>(to - at);
}

}  // namespace

void DirectCollectives::do_share(int whose) {
  in_.clear();
  out_.clear();
  switch (call_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduce(whose);
    case Collective::reduce_scatter:
      for (int i = 0; i < size_; ++i) in_.push_back(of(send_, i, block(whose).offset));
      out_.push_back(recv_[as_size(whose)]);
      return fold(call_.count);
    case Collective::broadcast:
      return broadcast(whose);
    case Collective::all_gather:
    case Collective::all_gather_v:
      return all_gather(whose);
    case Collective::gather:
    case Collective::gather_v:
      return gather(whose);
    case Collective::scatter:
    case Collective::scatter_v:
      return copy_with_root(whose);
    case Collective::all_to_all:
      return all_to_all(whose);
    case Collective::all_to_all_v:  // BoardCounted's
    case Collective::send:          // links'
    case Collective::recv:
    case Collective::barrier:  // has no buffers
      return;
  }
}

void DirectCollectives::reduce(int whose) {
  const Range mine = kernels::part({0, call_.count}, shares_, whose);
  for (int i = 0; i < size_; ++i) in_.push_back(of(send_, i, mine.offset));
  for (int i = 0; i < size_; ++i) {
    const int to = whose + i < size_ ? whose + i : whose + i - size_;
    if (call_.collective == Collective::all_reduce || to == call_.root) out_.push_back(of(recv_, to, mine.offset));
  }
  fold(mine.count);
}

// In parts, so that the root works too, where it reaches the others.
void DirectCollectives::broadcast(int whose) {
  if (!way_.pushes) return copy(recv_[as_size(whose)], of(send_, call_.root, 0), call_.count);
  const Range mine = kernels::part({0, call_.count}, shares_, whose);
  in_.push_back(of(send_, call_.root, mine.offset));
  for (int i = 0; i < size_; ++i) out_.push_back(of(recv_, (whose + i) % size_, mine.offset));
  spread(mine.count);
}

// A block to everybody, which reads it once; or everybody's block from them.
void DirectCollectives::all_gather(int whose) {
  if (way_.pushes) {
    return in_halves(
        whose, [&](int i) { return block(i).count; },
        [&](int of_rank, Range part) {
          in_.assign({of(send_, of_rank, part.offset)});
          out_.clear();
          for (int i = 0; i < size_; ++i)
            out_.push_back(of(recv_, (whose + i) % size_, block(of_rank).offset + part.offset));
          spread(part.count);
        });
  }
  for (int i = 0; i < size_; ++i) {
    const int from = nth_after(whose, i);
    copy(of(recv_, whose, block(from).offset), of(send_, from, 0), block(from).count);
  }
}

void DirectCollectives::gather(int whose) {
  if (way_.pushes) return copy_with_root(whose);
  for (int i = 0; i < size_ && whose == call_.root; ++i)
    copy(of(recv_, whose, block(i).offset), of(send_, i, 0), block(i).count);
}

void DirectCollectives::copy_with_root(int whose) {
  const bool gathers = row_of(call_.collective).recv_at_root;
  const auto count_of = [&](int i) { return i == call_.root && root_in_place() ? 0 : block(i).count; };
  in_halves(whose, count_of, [&](int i, Range part) {
    std::byte* const into = gathers ? of(recv_, call_.root, block(i).offset) : recv_[as_size(i)];
    const std::byte* const from = gathers ? send_[as_size(i)] : of(send_, call_.root, block(i).offset);
    copy(into + part.offset * element_, from + part.offset * element_, part.count);
  });
}

// The block of that rank; of two ranks of which one has much less to do, as a root whose own block lies in place, a
// half of both blocks.
template <class Count, class Part>
void DirectCollectives::in_halves(int whose, Count count_of, Part do_part) {
  if (size_ != 2 || !way_.shared) return do_part(whose, {0, block(whose).count});
  const std::size_t first = count_of(0), second = count_of(1);
  if (!chooser_.in_halves(first, second, element_)) return do_part(whose, {0, block(whose).count});
  const Range half = kernels::part({0, first + second}, size_, whose);
  const std::size_t end = half.offset + half.count;
  if (half.offset < first) do_part(0, {half.offset, std::min(end, first) - half.offset});
  if (end > first) do_part(1, {std::max(half.offset, first) - first, end - std::max(half.offset, first)});
}

void DirectCollectives::all_to_all(int whose) {
  for (int i = 0; i < size_; ++i) {
    const int peer = nth_after(whose, i);
    const int from = way_.pushes ? whose : peer, to = way_.pushes ? peer : whose;
    copy(of(recv_, to, block(from).offset), of(send_, from, block(to).offset), block(to).count);
  }
}

// What goes where an input was is in the caches already.
void DirectCollectives::fold(std::size_t count) {
  const auto is_input = [&](void* out) { return std::find(in_.begin(), in_.end(), out) != in_.end(); };
  const bool in_caches = std::all_of(out_.begin(), out_.end(), is_input);
  const double divisor = call_.op == ReduceOp::average ? size_ : 1.0;
  const std::size_t step = (scales_ ? kScratchBytes : kStepBytes) / element_;
  std::size_t at = 0;
  for (const Range now : Sweep(count, step, backwards_)) {
    team_.failure().check();
    turn_to(in_, at, now.offset * element_);
    turn_to(out_, std::exchange(at, now.offset * element_), now.offset * element_);
    const kernels::FoldJob job{.out = out_.data(),
                               .outputs = static_cast<int>(out_.size()),
                               .in = in_.data(),
                               .inputs = size_,
                               .count = now.count,
                               .divisor = divisor,
                               .stores = in_caches ? kernels::Stores::plain : stores_};
    if (scales_) {
      fold_scaled(job);
    } else {
      kernels::fold(call_.dtype, call_.op, job);
    }
  }
}

// As if every rank had published its products: rounded to the type, then added.
void DirectCollectives::fold_scaled(const kernels::FoldJob& job) {
  scratch_.resize(as_size(size_) * kScratchBytes);
  std::vector<const void*> products;
  for (int i = 0; i < size_; ++i) {
    std::byte* product = scratch_.data() + as_size(i) * kScratchBytes;
    kernels::find_multiply(call_.dtype)(product, job.in[i], job.count, factors_[as_size(i)]);
    products.push_back(product);
  }
  kernels::FoldJob sum = job;
  sum.in = products.data();
  kernels::fold(call_.dtype, call_.op, sum);
}

void DirectCollectives::spread(std::size_t count) {
  const auto* const from = static_cast<const std::byte*>(in_.front());
  std::erase(out_, from);
  std::size_t at = 0;
  for (const Range now : Sweep(count * element_, kStepBytes, backwards_)) {
    team_.failure().check();
    turn_to(out_, std::exchange(at, now.offset), now.offset);
    kernels::copy_to_all(out_, from + now.offset, now.count, stores_);
  }
}

void DirectCollectives::copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes) {
  if (into == from) return;
  for (const Range now : Sweep(bytes, kStepBytes, backwards_)) {
    team_.failure().check();
    kernels::copy(into + now.offset, from + now.offset, now.count, stores_);
  }
}

}  // namespace rondo::comm
