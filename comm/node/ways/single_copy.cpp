// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/single_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <rondo/error.hpp>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/node/rings/sweep.hpp"
#include "comm/transport/process_memory.hpp"

namespace rondo::comm {
namespace {

using threshold::kStepCopied;
using threshold::kStepSummed;
using threshold::kStepSwept;

constexpr std::size_t kPageBytes = 4 << 10;  // the kernel looks each one up
constexpr int kAll = Balance::kParts;

}  // namespace

SingleCopy::SingleCopy(const Team& team, const Chooser& chooser, Board& board, Claims& claims)
    : team_(team), board_(board), claims_(claims), chooser_(chooser), index_(board.index()), size_(board.size()) {}

const std::byte* SingleCopy::run(const CallFrame& call, std::span<const Told> told, int shift, bool backwards) {
  const Frame frame{call, told, chooser_.stores_beside_copies(call.call), shift, backwards};
  if (board_.crowded()) board_.look_around();
  if (frame.call.collective == Collective::reduce) return reduce_by_two(frame);
  copy_or_sum(frame);
  return nullptr;
}

void SingleCopy::copy_or_sum(const Frame& frame) {
  const Call& call = frame.call;
  const auto block = [&](int of) { return frame.block(of); };
  if (call.collective == Collective::all_reduce) return all_reduce_by_two(frame);
  if (call.collective == Collective::reduce_scatter)
    return sum(frame, {block(index_).offset * frame.element, call.count * frame.element});
  const auto parts = [&](std::size_t count) { return chooser_.copied_parts(call.collective, share(frame, count)); };
  for (int step = 0; step < size_; ++step) {
    const int on = frame.backwards ? size_ - 1 - step : step;
    const int other = index_ + on < size_ ? index_ + on : index_ + on - size_;
    switch (call.collective) {
      case Collective::broadcast:
        move(frame, call.root, other, {0, 0, call.count}, parts(call.count));
        break;
      case Collective::scatter:
      case Collective::scatter_v:
        move(frame, call.root, other, {block(other).offset, 0, block(other).count}, parts(block(other).count));
        break;
      case Collective::gather:
      case Collective::gather_v:
        move(frame, other, call.root, {0, block(other).offset, block(other).count}, parts(block(other).count));
        break;
      case Collective::all_to_all:
        exchange(frame, other, {block(index_).offset, block(other).offset, block(other).count},
                 {block(other).offset, block(index_).offset, block(index_).count});
        break;
      case Collective::all_gather:
      case Collective::all_gather_v:
        exchange(frame, other, {0, block(other).offset, block(other).count},
                 {0, block(index_).offset, block(index_).count});
        break;
      case Collective::all_reduce:  // sums have gone
      case Collective::reduce:
      case Collective::reduce_scatter:
      case Collective::all_to_all_v:  // fetches
      case Collective::send:
      case Collective::recv:
      case Collective::barrier:
        break;
    }
  }
}

bool SingleCopy::finish(const CallFrame& call, const std::byte* fetched) {
  if (as_size(size_) > Claims::kMost) {
    board_.meet();
    return false;
  }
  claims_.finish_own(size_ == 2 || !call.row.rooted || call.at_root());
  if (fetched == nullptr) return false;
  fold(call, call.call.send, fetched, call.call.recv, call.call.count * call.element);
  return true;
}

std::byte* SingleCopy::strip() {
  strip_.resize(kStepSummed);
  return strip_.data();
}

int SingleCopy::shifted(const Frame& frame, int parts, int by) {
  return std::clamp(by == 0 ? parts + frame.shift : parts - frame.shift, 0, kAll);
}

// Who is not the root brings it the sums, and so has fewer to do. Of a short one the root fetches all, and adds when it
// has told the other so.
const std::byte* SingleCopy::reduce_by_two(const Frame& frame) {
  const bool at_root = frame.at_root();
  const int made_by_root = chooser_.copied_parts(frame.call.collective, true);
  const std::size_t bytes = frame.call.count * frame.element,
                    of_root = part_of(bytes, shifted(frame, made_by_root, frame.call.root));
  if (!chooser_.root_adds_alone(bytes)) {
    sum(frame, at_root ? kernels::Range{0, of_root} : kernels::Range{of_root, bytes - of_root});
    return nullptr;
  }
  if (!at_root) return nullptr;
  std::byte* const into = frame.call.recv == frame.call.send ? strip() : static_cast<std::byte*>(frame.call.recv);
  copy_slices(frame, 1 - index_, true, into, frame.told[as_size(1 - index_)].send.at, bytes);
  return into;
}

void SingleCopy::all_reduce_by_two(const Frame& frame) {
  const int made_by_first = chooser_.copied_parts(frame.call.collective, true);
  const std::size_t bytes = frame.call.count * frame.element,
                    of_first = part_of(bytes, shifted(frame, made_by_first, 0));
  sum(frame, index_ == 0 ? kernels::Range{0, of_first} : kernels::Range{of_first, bytes - of_first});
}

// bytes: of both inputs. Strips of the other's are fetched, added to this rank's, and brought to the other where it
// gets these sums. In place, too: where they belong in its input it reads nothing itself.
void SingleCopy::sum(const Frame& frame, kernels::Range bytes) {
  const int other = 1 - index_;
  const bool gets = frame.call.collective != Collective::reduce || index_ == frame.call.root;
  const bool brings = !gets || frame.call.collective == Collective::all_reduce;
  const std::size_t skipped = frame.call.collective == Collective::reduce_scatter ? bytes.offset : 0;
  for (const kernels::Range now : Sweep(bytes.count, kStepSummed, frame.backwards)) {
    const std::size_t at = bytes.offset + now.offset;
    const auto* const own = static_cast<const std::byte*>(frame.call.send) + at;
    auto* const into = gets ? static_cast<std::byte*>(frame.call.recv) + at - skipped : strip();
    auto* const theirs = into == own ? strip() : into;
    copy_slices(frame, other, true, theirs, frame.told[as_size(other)].send.at + at, now.count);
    fold(frame, own, theirs, into, now.count);
    if (brings) copy_slices(frame, other, false, into, frame.told[as_size(other)].recv.at + at, now.count);
  }
}

void SingleCopy::fold(const CallFrame& frame, const void* own, const void* theirs, void* into,
                      std::size_t bytes) const {
  const void* const in[] = {index_ == 0 ? own : theirs, index_ == 0 ? theirs : own};
  kernels::fold(frame.call.dtype, frame.call.op,
                {.out = &into,
                 .outputs = 1,
                 .in = in,
                 .inputs = 2,
                 .count = bytes / frame.element,
                 .divisor = frame.call.op == ReduceOp::average ? 2.0 : 1.0});
}

// From the other, and what it gets from this rank: both fetch, but for what one of them does for the other.
void SingleCopy::exchange(const Frame& frame, int other, Stretch stretch, Stretch theirs) {
  move(frame, other, index_, stretch, kAll);
  if (other != index_ && share(frame, theirs.count)) move(frame, index_, other, theirs, kAll);
}

// So many parts of it are fetched by `to`, but for their shift, the rest is brought by `from`; other ranks have nothing
// to do with it.
void SingleCopy::move(const Frame& frame, int from, int to, Stretch stretch, int parts) {
  if (from == to) return from == index_ ? keep(frame, stretch) : void();
  const std::size_t send_at = stretch.send_at * frame.element, recv_at = stretch.recv_at * frame.element;
  const std::size_t bytes = stretch.count * frame.element,
                    pulled = part_of(bytes, share(frame, stretch.count) ? shifted(frame, parts, to) : parts);
  if (to == index_) {
    copy_slices(frame, from, true, static_cast<std::byte*>(frame.call.recv) + recv_at,
                frame.told[as_size(from)].send.at + send_at, pulled);
  }
  if (from == index_) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(frame.call.send)) + send_at;
    copy_slices(frame, to, false, data + pulled, frame.told[as_size(to)].recv.at + recv_at + pulled, bytes - pulled);
  }
}

std::size_t SingleCopy::part_of(std::size_t bytes, int parts) {
  return parts == kAll ? bytes : bytes / kAll * as_size(parts) / kPageBytes * kPageBytes;
}

void SingleCopy::keep(const Frame& frame, Stretch stretch) const {
  auto* const into = static_cast<std::byte*>(frame.call.recv) + stretch.recv_at * frame.element;
  const auto* const from = static_cast<const std::byte*>(frame.call.send) + stretch.send_at * frame.element;
  if (into == from) return;
  for (const kernels::Range now : Sweep(stretch.count * frame.element, kStepSwept, frame.backwards))
    kernels::copy(into + now.offset, from + now.offset, now.count, frame.own_stores);
}

void SingleCopy::copy_slices(const Frame& frame, int peer, bool pulls, std::byte* here, std::uint64_t there,
                             std::size_t bytes) const {
  const int rank = board_.rank_of(peer), pid = team_.placement(rank).pid;
  for (const kernels::Range now : Sweep(bytes, frame.backwards ? kStepSwept : kStepCopied, frame.backwards)) {
    team_.failure().check();
    const std::uint64_t address = there + now.offset;
    const int fault = pulls ? copy_from_process(pid, address, here + now.offset, now.count)
                            : copy_to_process(pid, address, here + now.offset, now.count);
    if (fault == 0) continue;
    const std::string what =
        fmt::format("rank {}: {} {} rank {}'s memory: {}", team_.rank(), name_of(frame.call.collective),
                    pulls ? "cannot read" : "cannot write", rank, std::strerror(fault));
    if (fault == ESRCH) throw Error(ErrorCode::peer_lost, what, rank);
    throw Error(ErrorCode::system, what + "; a RONDO_TUNING file with `single_copy_bytes never` does without", rank);
  }
}

}  // namespace rondo::comm
