// SPDX-License-Identifier: Apache-2.0
// kernels::Primitives on FIFOs between devices, for all threads of a block together: every thread runs the algorithm,
// and all take the same turns. Once the block has failed, moves do nothing, so the algorithm ends by itself.
#pragma once
#include <tuple>

#include "kernels/algorithms/table.hpp"
#include "kernels/device/progress.cuh"
#include "kernels/device/runs_on_device.hpp"
#include "kernels/device/share.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

template <class P>
class DevicePrimitives {
 public:
  RONDO_DEVICE DevicePrimitives(FifoBlock& block, const Launch& launch, const Operation& operation)
      : block_(block), launch_(launch), operation_(operation) {}

  RONDO_DEVICE void run(std::span<const Move> moves) {
    if (block_.failed) return;
    int active = 0;
    const auto add = [&](const Move& move) {
      if (move.count == 0) return;
      if (thread_index() == static_cast<unsigned>(active)) activate(block_.active[active], move);
      ++active;
    };
    // Written out, so that the moves of every call stay in registers: their number is known once this is inlined.
    if (!moves.empty()) add(moves[0]);
    if (moves.size() > 1) add(moves[1]);
    for (std::size_t i = 2; i < moves.size(); ++i) add(moves[i]);
    if (active > 1) order_moves(block_, active);
    if (active != 0) progress<P>(block_, active);
  }

  // As many steps at a time as can be in progress, each activated by a lane of its own.
  template <class F>
  RONDO_DEVICE void run_steps(int last, F&& moves_of) {
    constexpr int kEach = static_cast<int>(std::tuple_size_v<decltype(moves_of(0))>), kAtOnce = kMaxMessages / kEach;
    for (int done = 0; done < last && !block_.failed; done += kAtOnce) {
      const int steps = last - done < kAtOnce ? last - done : kAtOnce;
      const int lane = static_cast<int>(thread_index());
      if (lane < steps) {
        const auto moves = moves_of(done + lane + 1);
        RONDO_UNROLL
        for (int i = 0; i < kEach; ++i) activate(block_.active[lane * kEach + i], moves[static_cast<std::size_t>(i)]);
      }
      progress<P>(block_, steps * kEach);
    }
  }

  RONDO_DEVICE void fold(const Fold& fold) {
    const std::uint64_t bytes = fold.count * element();
    const bool scale = premultiplies() && fold.local.buffer == Buffer::input;
    for (std::uint64_t done = 0; done < bytes && !block_.failed; done += block_.slice_bytes) {
      const std::uint64_t left = bytes - done;
      fold_step<P>(block_, {resolve(fold.local) + done, resolve(fold.store) + done,
                            static_cast<std::uint32_t>(left < block_.slice_bytes ? left : block_.slice_bytes), scale});
    }
  }

  // Half of the slots, so that the next chunk can start while this one is on its way.
  RONDO_DEVICE std::size_t chunk_capacity() const {
    return std::size_t{block_.slots / 2} * block_.slice_bytes / element();
  }

  // Steps without bytes to every rank for which `to` is true, or from every one: pairs of ranks between which nothing
  // moves find out whether both think so.
  template <class F>
  RONDO_DEVICE void exchange_empty(bool to, F&& is_silent) {
    for (int peer = 0; peer < block_.world_size;) {
      int active = 0;
      for (; peer < block_.world_size && active < kMaxMessages; ++peer) {
        if (peer == block_.rank || !is_silent(peer)) continue;
        if (thread_index() == static_cast<unsigned>(active)) {
          activate(block_.active[active], to ? Move{.to = peer} : Move{.from = peer});
          block_.active[active].finished = false;
        }
        ++active;
      }
      if (active != 0 && !block_.failed) progress<P>(block_, active);
    }
  }

 private:
  RONDO_DEVICE unsigned element() const { return element_bytes(static_cast<DataType>(operation_.dtype)); }
  RONDO_DEVICE bool premultiplies() const { return operation_.reduces && operation_.op == ReduceOp::premultiplied_sum; }

  // What a barrier sends nobody reads, so any memory will do.
  RONDO_DEVICE std::byte* resolve(kernels::Location place) const {
    const std::uint64_t offset = place.offset * element();
    switch (place.buffer) {
      case Buffer::none:
        break;
      case Buffer::input:
        return const_cast<std::byte*>(block_.share.input) + offset;
      case Buffer::output:
        return block_.share.output + offset;
      case Buffer::scratch:
        return reinterpret_cast<std::byte*>(const_cast<DeviceTeam*>(launch_.team));
    }
    return nullptr;
  }

  RONDO_DEVICE void activate(Active& active, const Move& move) const {
    active.local = resolve(move.local);
    active.store = resolve(move.store);
    active.bytes = move.count * element();
    active.done = 0;
    active.signature = block_.patience.operation;
    active.key = block_.key;
    active.from = move.from;
    active.to = move.to;
    active.window = -1;
    active.may_refer = false;
    active.complete = move.complete && operation_.op == ReduceOp::average;
    active.scale = premultiplies() && move.local.buffer == Buffer::input;
    active.finished = move.count == 0;
    active.behind = 0;
    if (operation_.send_counts == kNoCounts || operation_.recv_counts == kNoCounts) return;
    // all_to_all with counts: what each pair has agreed on, and nobody else knows.
    if (move.to != kNobody) active.signature.count = launch_.counts[operation_.send_counts + move.to];
    if (move.from != kNobody) active.signature.count = launch_.counts[operation_.recv_counts + move.from];
    active.key = key_of(active.signature);
  }

  FifoBlock& block_;
  const Launch& launch_;
  const Operation& operation_;
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
