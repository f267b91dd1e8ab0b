// SPDX-License-Identifier: Apache-2.0
// The kernels for all_reduces over windows that are sums of f32, f16 or bf16: a block knows from its argument what is
// its own, opens with one line to each peer, which says where its buffers lie, has the first words of its own input on
// their way meanwhile, and passes two barriers. Where somebody's buffer lies in no window, the block goes on as the
// general kernel does, in whose staging areas the inputs are.
#pragma once
#include "kernels/device/access.cuh"
#include "kernels/device/push_line.cuh"
#include "kernels/device/window.cuh"
#include "kernels/device/window_sum.hpp"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

// The low 18 bits of a line's words: a one, for fresh memory has none, 3 bits of the block's epoch, and 14 of the key
// in each word. A line is written in every second epoch, so the one before it is an epoch less.
struct OpeningFlags {
  std::uint32_t first, second;
};
inline constexpr unsigned kOpeningFlagBits = 64 - kPlaceBits;
inline constexpr std::uint32_t kOpeningFlag = (1u << kOpeningFlagBits) - 1, kOpeningNumber = 0xf;

RONDO_DEVICE OpeningFlags opening_flags(std::uint64_t epoch, std::uint64_t key) {
  const std::uint32_t number = (static_cast<std::uint32_t>(epoch) >> 1 & 7u) << 1 | 1u;
  const auto low = static_cast<std::uint32_t>(key);
  return {(low << 4 & kOpeningFlag) | number, (low >> 14 << 4 & kOpeningFlag) | number};
}
RONDO_DEVICE u64x2 opening_line(std::uint64_t sent, std::uint64_t kept, OpeningFlags flags) {
  return {sent << kOpeningFlagBits | flags.first, kept << kOpeningFlagBits | flags.second};
}
RONDO_DEVICE bool has_come(u64x2 line, OpeningFlags flags) {
  return (line.x & kOpeningFlag) == flags.first && (line.y & kOpeningFlag) == flags.second;
}
// Both words are of this epoch, and of another call.
RONDO_DEVICE bool differs(u64x2 line, OpeningFlags flags) {
  const auto is_now = [&](std::uint64_t word) { return ((word ^ flags.first) & kOpeningNumber) == 0; };
  return is_now(line.x) && is_now(line.y) && !has_come(line, flags);
}

RONDO_DEVICE unsigned window_of(std::uint64_t place) { return place & ((1u << kWindowBits) - 1); }
RONDO_DEVICE std::uint64_t offset_of(std::uint64_t place) { return place >> kWindowBits; }

// Where a block is: how often it has opened, its other meetings, and the collective.
struct WindowSumCounts {
  std::uint64_t openings, epoch, sequence;
};

// By a thread that has looked at a line, or a word, in vain for kEagerPolls times.
RONDO_DEVICE Patience patience_of(const WindowSumLaunch& launch, const DeviceSignature& of, std::uint64_t sequence) {
  DeviceSignature signature = of;
  signature.sequence = sequence;
  return {launch.team, timer_ns(), launch.timeout_ns, signature, Protocol::simple, true};
}
RONDO_DEVICE_CALL u64x2 await_opening(const WindowSumLaunch& launch, const DeviceSignature& of, std::uint64_t sequence,
                                      const Opening* opening, OpeningFlags flags, int peer, std::uint64_t epoch) {
  const Patience patience = patience_of(launch, of, sequence);
  const auto* const line = reinterpret_cast<const std::byte*>(opening->line);
  u64x2 seen{};
  return await_line(patience, line, flags, peer, epoch, true, seen) ? seen : u64x2{0, 0};
}
RONDO_DEVICE_CALL bool await_closing(const WindowSumLaunch& launch, const DeviceSignature& of, std::uint64_t sequence,
                                     const Opening* opening, Since theirs, int peer, std::uint64_t epoch) {
  const Patience patience = patience_of(launch, of, sequence);
  const auto is_there = [epoch](std::uint64_t seen) { return seen == epoch; };
  return theirs == Since::read ? wait_for_credit(patience, &opening->closed, peer, epoch, patience.operation, is_there)
                               : wait_for(patience, &opening->closed, peer, epoch, patience.operation, is_there);
}

template <class E>
RONDO_DEVICE_CALL std::uint64_t sum_staged(const WindowSumLaunch& launch, const WindowSumOperation& operation,
                                           WindowBlock& block, WindowSumCounts counts, bool alive, bool met);

// An operation, by all threads.
template <class E>
class WindowSumTurn {
 public:
  RONDO_DEVICE WindowSumTurn(const WindowSumLaunch& launch, const WindowSumOperation& operation, WindowBlock& block,
                             WindowSumCounts counts)
      : launch_(launch),
        operation_(operation),
        block_(block),
        counts_(counts),
        flags_(opening_flags(counts.openings, mix(operation.hash, counts.sequence))) {
    const std::uint32_t index = block_index() * operation.pieces + (operation.pieces == 1 ? 0u : rank());
    const std::uint64_t vectors = operation.vectors + (index < operation.longer ? 1u : 0u);
    first_ = (index * operation.vectors + (index < operation.longer ? index : operation.longer)) * kVector;
    bytes_ = vectors * kVector;
    if (first_ + bytes_ > operation.bytes) bytes_ = first_ < operation.bytes ? operation.bytes - first_ : 0;
  }

  // first: the block has met nobody in this kernel. The block's epoch afterwards, 0: this thread gave up.
  RONDO_DEVICE std::uint64_t run(bool alive, bool first) const {
    if (launch_.ranks > 1 && operation_.sent == kNoPlace) return go_staged(alive, false);
    if (alive) open(first);
    const Loaded own = alive ? load_own() : Loaded{};
    bool staged = launch_.ranks > 1 && operation_.kept == kNoPlace;
    const bool met = alive && meet(staged);
    if (block_or(!met || staged)) return go_staged(met, true);
    RONDO_STAMP(met);
    const WindowArithmetic* const folds = &block_.plan.arithmetic;  // never looked at
    const auto targets = static_cast<int>(operation_.pieces);
    move_window<SumFold<E>>({block_.source, block_.target, launch_.ranks, targets, bytes_, folds}, own);
    RONDO_STAMP(moved);
    if (launch_.ranks == 1) return counts_.epoch + 1;
    return close() ? counts_.epoch + 1 : 0;
  }

  // What others have to do with is there: to each peer, with a fence where this kernel has written some of it.
  RONDO_DEVICE void open(bool first) const {
    const u64x2 line = opening_line(operation_.sent, operation_.kept, flags_);
    for_my_peers([&](int peer, int) {
      Opening* const opening = opening_at(peer, launch_.rank);
      if (first) {
        ll_open(opening->line, line);
      } else {
        ll_release(opening->line, line);
      }
      return true;
    });
    if (block_index() == 0 && thread_index() + 32 == block_threads()) {
      DeviceSignature signature = operation_.general.signature;
      signature.sequence = counts_.sequence;
      write_history(*launch_.header, signature);
    }
    RONDO_STAMP(posted);
  }

  // Fills the tables. False: gave up. staged: becomes true where a peer says so.
  RONDO_DEVICE bool meet(bool& staged) const {
    if (thread_index() + 1 == block_threads()) {
      const Operation& mine = operation_.general;
      note(launch_.rank, operation_.sent == kNoPlace ? nullptr : mine.input,
           operation_.kept == kNoPlace ? nullptr : mine.output);
      block_.source[launch_.rank] = mine.input + first_;
      block_.target[operation_.pieces - 1] = mine.output + first_;
    }
    const bool came = for_my_peers([&](int peer, int index) { return meet_one(peer, index, staged); });
    RONDO_STAMP(seen);
    return came;
  }

 private:
  RONDO_DEVICE unsigned rank() const { return static_cast<unsigned>(launch_.rank); }

  // f(peer, index) for those that this thread meets, for as long as it is true. Every rank begins with another.
  template <class F>
  RONDO_DEVICE bool for_my_peers(F&& f) const {
    RONDO_NO_UNROLL
    for (auto i = static_cast<int>(thread_index()); i < launch_.ranks - 1; i += static_cast<int>(block_threads())) {
      const int peer = launch_.rank + 1 + i;
      if (!f(peer < launch_.ranks ? peer : peer - launch_.ranks, i)) return false;
    }
    return true;
  }
  RONDO_DEVICE Opening* opening_at(int at, int from) const {
    const unsigned place = 2 * block_index() + static_cast<unsigned>(counts_.openings & 1);
    return launch_.openings[at] + (place * static_cast<unsigned>(launch_.ranks) + static_cast<unsigned>(from));
  }

  RONDO_DEVICE Loaded load_own() const {
    const std::byte* const from = operation_.general.input + first_;
    const std::uint64_t at = thread_index() * std::uint64_t{kVector};
    if (!is_aligned(from, kVector) || at + kVector > bytes_) return {};
    return {launch_.rank, load<u64x2>(from + at)};
  }

  RONDO_DEVICE void note(int peer, const std::byte* input, std::byte* output) const {
    block_.input[peer] = input;
    block_.output[peer] = output;
  }
  // Where windows begin is looked up before the line has come: mostly they are the same as this rank's.
  RONDO_DEVICE bool meet_one(int peer, int index, bool& staged) const {
    const auto& windows = launch_.team->windows;
    std::byte* from = windows[window_of(operation_.sent)][peer];
    std::byte* to = windows[window_of(operation_.kept)][peer];
    u64x2 line{};
    if (!look(peer, line)) return false;
    const std::uint64_t sent = line.x >> kOpeningFlagBits, kept = line.y >> kOpeningFlagBits;
    if (window_of(sent) != window_of(operation_.sent)) from = windows[window_of(sent)][peer];
    if (window_of(kept) != window_of(operation_.kept)) to = windows[window_of(kept)][peer];
    from = sent == kNoPlace ? nullptr : from + offset_of(sent);
    to = kept == kNoPlace ? nullptr : to + offset_of(kept);
    staged = staged || sent == kNoPlace || kept == kNoPlace;
    note(peer, from, to);
    if (from != nullptr) block_.source[peer] = from + first_;
    if (operation_.pieces != 1 && to != nullptr) block_.target[index] = to + first_;
    return true;
  }
  RONDO_DEVICE bool look(int peer, u64x2& line) const {
    const Opening* const opening = opening_at(launch_.rank, peer);
    bool came = false;
    RONDO_NO_UNROLL
    for (unsigned polls = 0; polls < kEagerPolls && !came; ++polls) {
      line = ll_load(opening->line);
      came = has_come(line, flags_);
    }
    if (!came) {
      line = await_opening(launch_, operation_.general.signature, counts_.sequence, opening, flags_, peer,
                           counts_.openings);
      if (line.x == 0) return false;
    }
    lines_have_come();
    ll_trust(opening->line);
    return true;
  }

  // Everybody has read what is this rank's, and written into it.
  RONDO_DEVICE bool close() const {
    block_sync();
    for_my_peers([&](int peer, int) {
      std::uint64_t* const word = &opening_at(peer, launch_.rank)->closed;
      if (operation_.pieces == 1) {
        give_credit(word, counts_.openings);
      } else {
        store_release(word, counts_.openings);
      }
      return true;
    });
    RONDO_STAMP(posted_again);
    // Another question: of both wrong alike ThreadSanitizer sees nothing.
    const Since theirs = operation_.pieces == 1 ? Since::read : Since::wrote;
    const bool closed = for_my_peers([&](int peer, int) {
      const Opening* const opening = opening_at(launch_.rank, peer);
      RONDO_NO_UNROLL
      for (unsigned polls = 0; polls < kEagerPolls; ++polls) {
        const std::uint64_t seen =
            theirs == Since::read ? load_credit(&opening->closed) : load_acquire(&opening->closed);
        if (seen == counts_.openings) return true;
      }
      return await_closing(launch_, operation_.general.signature, counts_.sequence, opening, theirs, peer,
                           counts_.openings);
    });
    RONDO_STAMP(met_again);
    return closed;
  }

  RONDO_DEVICE std::uint64_t go_staged(bool alive, bool met) const {
    return sum_staged<E>(launch_, operation_, block_, counts_, alive, met);
  }

  const WindowSumLaunch& launch_;
  const WindowSumOperation& operation_;
  WindowBlock& block_;
  const WindowSumCounts counts_;
  const OpeningFlags flags_;
  std::uint64_t first_, bytes_;  // this block's piece
};

// Where somebody stages. met: the openings have come, and the tables are filled. As run().
template <class E>
RONDO_DEVICE_CALL std::uint64_t sum_staged(const WindowSumLaunch& launch, const WindowSumOperation& operation,
                                           WindowBlock& block, WindowSumCounts counts, bool alive, bool met) {
  const WindowOperation<SumFold<E>> task(block);
  if (thread_index() == 0) {
    block.patience = patience_of(launch, operation.general.signature, counts.sequence);
    block.epoch = counts.epoch;
    plan_operation(block, *launch.team, operation.general);
    const std::uint64_t rounds = task.rounds();
    RONDO_NO_UNROLL
    for (int rank = 0; rank < launch.ranks; ++rank) block.rounds[rank] = rounds;
    RONDO_STAMP(planned);
  }
  if (block_or(!alive)) return 0;
  const auto meet = [&] {
    if (met) return true;
    block_sync();  // the copy is made
    const WindowSumTurn<E> turn(launch, operation, block, counts);
    bool staged = false;
    turn.open(false);
    const bool came = !block_or(!turn.meet(staged));
    RONDO_STAMP(met);
    return came;
  };
  if (!task.run(meet)) return 0;
  return counts.epoch + block.plan.rounds * (block.plan.ends_together ? 2u : 1u);
}

template <class E>
RONDO_KERNEL window_sum_kernel(RONDO_KERNEL_ARGUMENT WindowSumLaunch launch) {
  RONDO_SHARED(WindowBlock, block);
  RONDO_STAMP(begin);
  await_stream();
  RONDO_STAMP(awaited);
  RegionHeader& header = *launch.header;
  WindowSumCounts counts{.openings = load<std::uint64_t>(&header.opening_epoch[block_index()]),
                         .epoch = load<std::uint64_t>(&header.block_epoch[block_index()]),
                         .sequence = load<std::uint64_t>(&header.block_sequence[block_index()])};
  bool alive = enter_alone(launch, Protocol::simple, true);
  alive = alive && load_relaxed(&header.failed) == 0;  // another block may just be failing: the barrier makes them one
  RONDO_STAMP(opened);
  bool met = false;
  RONDO_NO_UNROLL
  for (int i = 0; i < launch.operations; ++i) {
    ++counts.sequence;
    const WindowSumOperation& operation = launch.operation[i];
    if (block_index() >= operation.general.channels) continue;
    ++counts.openings;
    if (met) alive = !block_or(!alive);  // the operation before is over for all threads
    const std::uint64_t epoch = WindowSumTurn<E>(launch, operation, block, counts).run(alive, !met);
    met = true;
    alive = epoch != 0;
    if (alive) counts.epoch = epoch;
    RONDO_STAMP(finished);
  }
  if (!met || launch.guarded != 0) block_sync();  // all threads have read the counters; a thread leaves for all
  if (thread_index() == 0) {
    store<std::uint64_t>(&header.opening_epoch[block_index()], counts.openings);
    store<std::uint64_t>(&header.block_epoch[block_index()], counts.epoch);
  }
  advance_sequence(header, counts.sequence);
  if (!alive) store_relaxed(&header.failed, 1);
  leave_alone(launch);
  RONDO_STAMP_END(*launch.team);
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
