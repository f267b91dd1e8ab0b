// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/copied_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <rondo/error.hpp>

#include "comm/call/blocks.hpp"
#include "comm/node/rings/sweep.hpp"
#include "comm/transport/process_memory.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kSliceBytes = 8 << 20;    // between two looks at the communicator's failure
constexpr std::size_t kSweptBytes = 512 << 10;  // at once, where it goes backwards
constexpr std::size_t kPageBytes = 4 << 10;     // the kernel looks each one up
constexpr int kAll = Balance::kParts;

}  // namespace

CopiedCollectives::CopiedCollectives(const Team& team, const Chooser& chooser, Board& board, Claims& claims)
    : team_(team), board_(board), claims_(claims), chooser_(chooser), index_(board.index()), size_(board.size()) {}

void CopiedCollectives::run(const Call& call, std::span<const kernels::Range> blocks, Buffers buffers, int shift,
                            bool backwards) {
  backwards_ = backwards;
  call_ = call;
  element_ = size_of(call.dtype);
  buffers_ = buffers;
  shift_ = shift;
  own_stores_ = chooser_.stores_beside_copies(call);
  if (board_.is_crowded()) board_.look_around();
  const auto block = [&](int of) { return blocks[as_size(of)]; };
  if (call.collective == Collective::reduce) return reduce_by_two();
  if (call.collective == Collective::all_reduce) return all_reduce_by_two();
  if (call.collective == Collective::reduce_scatter)
    return sum({block(index_).offset * element_, call.count * element_});
  const auto parts = [&](std::size_t count) { return chooser_.copied_parts(call.collective, share(count)); };
  for (int step = 0; step < size_; ++step) {
    const int on = backwards_ ? size_ - 1 - step : step;
    const int other = index_ + on < size_ ? index_ + on : index_ + on - size_;
    switch (call.collective) {
      case Collective::broadcast:
        move(call.root, other, {0, 0, call.count}, parts(call.count));
        break;
      case Collective::scatter:
      case Collective::scatter_v:
        move(call.root, other, {block(other).offset, 0, block(other).count}, parts(block(other).count));
        break;
      case Collective::gather:
      case Collective::gather_v:
        move(other, call.root, {0, block(other).offset, block(other).count}, parts(block(other).count));
        break;
      case Collective::all_to_all:
        exchange(other, {block(index_).offset, block(other).offset, block(other).count},
                 {block(other).offset, block(index_).offset, block(index_).count});
        break;
      case Collective::all_gather:
      case Collective::all_gather_v:
        exchange(other, {0, block(other).offset, block(other).count}, {0, block(index_).offset, block(index_).count});
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

bool CopiedCollectives::finish() {
  if (as_size(size_) > Claims::kMost) {
    board_.meet();
    return false;
  }
  claims_.finish_own(size_ == 2 || !row_of(call_.collective).rooted || index_ == call_.root);
  if (fetched_ == nullptr) return false;
  fold(call_.send, std::exchange(fetched_, nullptr), call_.recv, call_.count * element_);
  return true;
}

int CopiedCollectives::shifted(int parts, int by) const {
  return std::clamp(by == 0 ? parts + shift_ : parts - shift_, 0, kAll);
}

// Who is not the root brings it the sums, and so has fewer to do. Of a short one the root fetches all, and adds when it
// has told the other so.
void CopiedCollectives::reduce_by_two() {
  const bool at_root = index_ == call_.root;
  const int made_by_root = chooser_.copied_parts(call_.collective, true);
  const std::size_t bytes = call_.count * element_, of_root = part_of(bytes, shifted(made_by_root, call_.root));
  if (!chooser_.root_adds_alone(bytes)) {
    return sum(at_root ? kernels::Range{0, of_root} : kernels::Range{of_root, bytes - of_root});
  }
  if (!at_root) return;
  std::byte* const into = call_.recv == call_.send ? strip() : static_cast<std::byte*>(call_.recv);
  copy_slices(1 - index_, true, into, buffers_.send[as_size(1 - index_)], bytes);
  fetched_ = into;
}

void CopiedCollectives::all_reduce_by_two() {
  const int made_by_first = chooser_.copied_parts(call_.collective, true);
  const std::size_t bytes = call_.count * element_, of_first = part_of(bytes, shifted(made_by_first, 0));
  sum(index_ == 0 ? kernels::Range{0, of_first} : kernels::Range{of_first, bytes - of_first});
}

// bytes: of both inputs. Strips of the other's are fetched, added to this rank's, and brought to the other where it
// gets these sums. In place, too: where they belong in its input it reads nothing itself.
void CopiedCollectives::sum(kernels::Range bytes) {
  const int other = 1 - index_;
  const bool gets = call_.collective != Collective::reduce || index_ == call_.root;
  const bool brings = !gets || call_.collective == Collective::all_reduce;
  const std::size_t skipped = call_.collective == Collective::reduce_scatter ? bytes.offset : 0;
  for (const kernels::Range now : Sweep(bytes.count, kStripBytes, backwards_)) {
    const std::size_t at = bytes.offset + now.offset;
    const auto* const own = static_cast<const std::byte*>(call_.send) + at;
    auto* const into = gets ? static_cast<std::byte*>(call_.recv) + at - skipped : strip();
    auto* const theirs = into == own ? strip() : into;
    copy_slices(other, true, theirs, buffers_.send[as_size(other)] + at, now.count);
    fold(own, theirs, into, now.count);
    if (brings) copy_slices(other, false, into, buffers_.recv[as_size(other)] + at, now.count);
  }
}

void CopiedCollectives::fold(const void* own, const void* theirs, void* into, std::size_t bytes) const {
  const void* const in[] = {index_ == 0 ? own : theirs, index_ == 0 ? theirs : own};
  kernels::fold(call_.dtype, call_.op,
                {.out = &into,
                 .outputs = 1,
                 .in = in,
                 .inputs = 2,
                 .count = bytes / element_,
                 .divisor = call_.op == ReduceOp::average ? 2.0 : 1.0});
}

// From the other, and what it gets from this rank: both fetch, but for what one of them does for the other.
void CopiedCollectives::exchange(int other, Stretch stretch, Stretch theirs) {
  move(other, index_, stretch, kAll);
  if (other != index_ && share(theirs.count)) move(index_, other, theirs, kAll);
}

// So many parts of it are fetched by `to`, but for their shift, the rest is brought by `from`; other ranks have nothing
// to do with it.
void CopiedCollectives::move(int from, int to, Stretch stretch, int parts) {
  if (from == to) return from == index_ ? keep(stretch) : void();
  const std::size_t send_at = stretch.send_at * element_, recv_at = stretch.recv_at * element_;
  const std::size_t bytes = stretch.count * element_,
                    pulled = part_of(bytes, share(stretch.count) ? shifted(parts, to) : parts);
  if (to == index_) {
    copy_slices(from, true, static_cast<std::byte*>(call_.recv) + recv_at, buffers_.send[as_size(from)] + send_at,
                pulled);
  }
  if (from == index_) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(call_.send)) + send_at;
    copy_slices(to, false, data + pulled, buffers_.recv[as_size(to)] + recv_at + pulled, bytes - pulled);
  }
}

std::size_t CopiedCollectives::part_of(std::size_t bytes, int parts) {
  return parts == kAll ? bytes : bytes / kAll * as_size(parts) / kPageBytes * kPageBytes;
}

void CopiedCollectives::keep(Stretch stretch) const {
  auto* const into = static_cast<std::byte*>(call_.recv) + stretch.recv_at * element_;
  const auto* const from = static_cast<const std::byte*>(call_.send) + stretch.send_at * element_;
  if (into == from) return;
  for (const kernels::Range now : Sweep(stretch.count * element_, kSweptBytes, backwards_))
    kernels::copy(into + now.offset, from + now.offset, now.count, own_stores_);
}

void CopiedCollectives::copy_slices(int peer, bool pulls, std::byte* here, std::uint64_t there,
                                    std::size_t bytes) const {
  const int rank = board_.rank_of(peer), pid = team_.placement(rank).pid;
  for (const kernels::Range now : Sweep(bytes, backwards_ ? kSweptBytes : kSliceBytes, backwards_)) {
    team_.failure().check();
    const std::uint64_t address = there + now.offset;
    const int fault = pulls ? copy_from_process(pid, address, here + now.offset, now.count)
                            : copy_to_process(pid, address, here + now.offset, now.count);
    if (fault == 0) continue;
    const std::string what = fmt::format("rank {}: {} {} rank {}'s memory: {}", team_.rank(), name_of(call_.collective),
                                         pulls ? "cannot read" : "cannot write", rank, std::strerror(fault));
    if (fault == ESRCH) throw Error(ErrorCode::peer_lost, what, rank);
    throw Error(ErrorCode::system, what + "; a RONDO_TUNING file with `single_copy_bytes never` does without", rank);
  }
}

}  // namespace rondo::comm
