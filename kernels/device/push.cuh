// SPDX-License-Identifier: Apache-2.0
// The kernels for short messages: every thread writes its 8 bytes into the inboxes of all peers at once, as an LL line,
// looks at the lines of all of them together, and folds in rank order. One crossing, no fence, and one block barrier an
// operation, before which everybody has heard of everybody; so places in the inboxes, which epochs use in turn, need no
// acknowledgement, and nothing is registered. What is needed lies in the kernel's argument.
#pragma once
#include "kernels/device/access.cuh"
#include "kernels/device/push_line.cuh"
#include "kernels/device/values.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

inline constexpr int kPushBatch = 8;  // ranks whose lines a thread has in flight

// What to do with the words of a column, which come in rank order.
template <class E>
struct PushSum {
  static constexpr bool kFolds = true;
  Accumulator<E, Sum, std::uint64_t> sum;
  RONDO_DEVICE void take(int rank, std::uint64_t word) {
    if (rank == 0) {
      sum.start(word);
    } else {
      sum.add(word);
    }
  }
  RONDO_DEVICE std::uint64_t bits() const { return sum.bits(); }
};
struct PushCopy {
  static constexpr bool kFolds = false;
  RONDO_DEVICE void take(int, std::uint64_t) {}
  RONDO_DEVICE static std::uint64_t bits() { return 0; }
};

template <class Column>
RONDO_DEVICE_CALL bool take_patiently(const PushLaunch& launch, const PushOperation& operation, std::uint32_t epoch,
                                      std::uint64_t sequence, std::uint32_t line, std::uint32_t lines);

// An operation as one thread sees it.
template <class Column>
class PushTurn {
 public:
  RONDO_DEVICE PushTurn(const PushLaunch& launch, const PushOperation& operation, std::uint32_t epoch,
                        std::uint64_t sequence)
      : launch_(launch),
        operation_(operation),
        epoch_(epoch),
        sequence_(sequence),
        flags_(push_flags(epoch, push_key(operation, sequence))),
        first_(operation.lines * 8 * block_index()) {}

  // False: drain.
  RONDO_DEVICE bool run(bool alive) const {
    const std::uint32_t sent = lines_from(launch_.rank), all = operation_.from == PushFrom::root ? most_lines() : sent;
    RONDO_NO_UNROLL
    for (std::uint32_t line = thread_index(); line < sent; line += block_threads()) {
      if (!push(line, alive)) return false;
    }
    if (!alive) return false;
    if (is_refreshing(epoch_)) refresh(sent);
    if (block_index() == 0 && thread_index() + 32 == block_threads()) {  // others may have less to do
      DeviceSignature signature = operation_.signature;
      signature.sequence = sequence_;
      write_history(*launch_.header, signature);
    }
    RONDO_STAMP(posted);
    RONDO_NO_UNROLL
    for (std::uint32_t line = thread_index(); line < all; line += block_threads()) {
      if (!take(line)) return take_patiently<Column>(launch_, operation_, epoch_, sequence_, line, all);
    }
    RONDO_STAMP(folded);
    return true;
  }

  // The same of this line and the thread's others, one rank after the other, with an eye on the abort word and the
  // clock. False: gave up.
  RONDO_DEVICE bool take_with(const Patience& patience, std::uint32_t line) const {
    const std::uint32_t at = first_ + line * 8, left = left_at(at);
    const std::uint64_t own = own_word(launch_.rank, at);
    Column column{};
    RONDO_NO_UNROLL
    for (int rank = 0; rank < launch_.ranks; ++rank) {
      std::uint64_t word = own;
      if (awaits(rank, line) && !await_push(patience, slot(launch_.rank, rank, line), flags_, rank, epoch_, word)) {
        return false;
      }
      lines_have_come();
      if constexpr (Column::kFolds) {
        column.take(rank, word);
      } else if (left != 0 && sends_data(rank)) {
        store_word(output(rank, at), left, word);
      }
    }
    if (Column::kFolds && left != 0) store_word(output(0, at), left, column.bits());
    return true;
  }

 private:
  // Of this block; the first is sent even where there is no data.
  RONDO_DEVICE std::uint32_t most_lines() const {
    const std::uint32_t left = operation_.bytes > first_ ? (operation_.bytes - first_ + 7) / 8 : 0;
    const std::uint32_t lines = left < operation_.lines ? left : operation_.lines;
    return lines == 0 ? 1 : lines;
  }
  RONDO_DEVICE bool sends_data(int rank) const { return operation_.from == PushFrom::all || rank == operation_.root; }
  RONDO_DEVICE std::uint32_t lines_from(int rank) const { return sends_data(rank) ? most_lines() : 1; }

  RONDO_DEVICE std::byte* slot(int at, int from, std::uint32_t line) const {
    const auto place = 2 * block_index() + (epoch_ & 1);
    const auto index = place * static_cast<unsigned>(launch_.ranks) + static_cast<unsigned>(from);
    return launch_.inbox[at] + (std::size_t{index} * kPushSlotBytes + std::size_t{line} * 16);
  }
  RONDO_DEVICE std::uint32_t left_at(std::uint32_t at) const {
    return at < operation_.bytes ? operation_.bytes - at : 0;
  }
  // What this rank has for `peer`.
  RONDO_DEVICE const std::byte* input(int peer, std::uint32_t at) const {
    return operation_.input + std::size_t{operation_.send_stride} * static_cast<unsigned>(peer) + at;
  }
  RONDO_DEVICE std::byte* output(int peer, std::uint32_t at) const {
    return operation_.output + std::size_t{operation_.recv_stride} * static_cast<unsigned>(peer) + at;
  }
  RONDO_DEVICE std::uint64_t own_word(int peer, std::uint32_t at) const {
    const std::uint32_t left = left_at(at);
    return left == 0 || !sends_data(launch_.rank) ? 0 : load_word(input(peer, at), left);
  }

  // Loads come before `alive` is looked at, which is on its way itself.
  RONDO_DEVICE bool push(std::uint32_t line, bool alive) const {
    const std::uint32_t at = first_ + line * 8;
    if (!Column::kFolds || operation_.send_stride == 0) {
      const std::uint64_t word = own_word(0, at);
      if (!alive) return false;
      for_each_peer([&](int peer) { ll_store(slot(peer, launch_.rank, line), push_line(word, flags_)); });
      return true;
    }
    if (!alive) return false;
    if (left_at(at) < 8 || !is_aligned(input(0, at), 8) || operation_.send_stride % 8 != 0) {
      for_each_peer([&](int peer) { ll_store(slot(peer, launch_.rank, line), push_line(own_word(peer, at), flags_)); });
      return true;
    }
    RONDO_NO_UNROLL
    for (int first = 1; first < launch_.ranks; first += kPushBatch) {
      std::uint64_t words[kPushBatch];
      RONDO_UNROLL
      for (int i = 0; i < kPushBatch; ++i) {
        words[i] = 0;
        if (first + i < launch_.ranks) words[i] = load<std::uint64_t>(input(peer_at(first + i), at));
      }
      RONDO_UNROLL
      for (int i = 0; i < kPushBatch; ++i) {
        if (first + i >= launch_.ranks) break;
        ll_store(slot(peer_at(first + i), launch_.rank, line), push_line(words[i], flags_));
      }
    }
    return true;
  }
  // Every rank begins with another one. Nobody waits for a store.
  template <class F>
  RONDO_DEVICE void for_each_peer(F&& f) const {
    RONDO_NO_UNROLL
    for (int distance = 1; distance < launch_.ranks; ++distance) f(peer_at(distance));
  }
  RONDO_DEVICE int peer_at(int distance) const {
    const int peer = launch_.rank + distance;
    return peer < launch_.ranks ? peer : peer - launch_.ranks;
  }

  RONDO_DEVICE void refresh(std::uint32_t sent) const {
    RONDO_NO_UNROLL
    for (std::uint32_t line = sent + thread_index(); line < kPushLines; line += block_threads()) {
      for_each_peer([&](int peer) { ll_store(slot(peer, launch_.rank, line), push_line(0, flags_)); });
    }
  }

  // False: some have not come.
  RONDO_DEVICE bool take(std::uint32_t line) const {
    const std::uint32_t at = first_ + line * 8, left = left_at(at);
    const std::uint64_t own = own_word(launch_.rank, at);
    Column column{};
    RONDO_NO_UNROLL
    for (int first = 0; first < launch_.ranks; first += kPushBatch) {
      u64x2 lines[kPushBatch];
      if (!look(first, line, lines)) return false;
      if constexpr (Column::kFolds) {
        RONDO_UNROLL
        for (int i = 0; i < kPushBatch; ++i) {
          if (first + i >= launch_.ranks) break;
          column.take(first + i, first + i == launch_.rank ? own : push_word(lines[i]));
        }
      } else {
        put(first, line, left, own, lines);
      }
    }
    if (Column::kFolds && left != 0) store_word(output(0, at), left, column.bits());
    return true;
  }
  // Of copies: where each rank's word belongs.
  RONDO_DEVICE void put(int first, std::uint32_t line, std::uint32_t left, std::uint64_t own,
                        const u64x2 (&lines)[kPushBatch]) const {
    const std::uint32_t at = first_ + line * 8;
    if (left >= 8 && is_aligned(output(0, at), 8) && operation_.recv_stride % 8 == 0) {
      RONDO_UNROLL
      for (int i = 0; i < kPushBatch; ++i) {
        const int rank = first + i;
        if (rank >= launch_.ranks) break;
        if (!sends_data(rank)) continue;
        store<std::uint64_t>(output(rank, at), rank == launch_.rank ? own : push_word(lines[i]));
      }
      return;
    }
    const int end = first + kPushBatch < launch_.ranks ? first + kPushBatch : launch_.ranks;
    RONDO_NO_UNROLL
    for (int rank = first; left != 0 && rank < end; ++rank) {  // they are there still
      if (!sends_data(rank)) continue;
      const std::uint64_t word = rank == launch_.rank ? own : push_word(ll_load(slot(launch_.rank, rank, line)));
      store_word(output(rank, at), left, word);
    }
  }

  RONDO_DEVICE bool awaits(int rank, std::uint32_t line) const {
    return rank < launch_.ranks && rank != launch_.rank && (Column::kFolds || line == 0 || sends_data(rank));
  }
  // The line of kPushBatch ranks from `first` on, all of them on their way at once. False: not yet.
  RONDO_DEVICE bool look(int first, std::uint32_t line, u64x2 (&lines)[kPushBatch]) const {
    const std::byte* const from = slot(launch_.rank, first, line);
    RONDO_NO_UNROLL
    for (unsigned polls = 0; polls < kEagerPolls; ++polls) {
      RONDO_UNROLL
      for (int i = 0; i < kPushBatch; ++i) {
        lines[i] = {0, 0};  // or what was there before would be kept in registers
        if (awaits(first + i, line)) lines[i] = ll_load(from + static_cast<unsigned>(i) * kPushSlotBytes);
      }
      bool all = true;
      RONDO_UNROLL
      for (int i = 0; i < kPushBatch; ++i) {
        if (awaits(first + i, line)) all = all && has_come(lines[i], flags_);
      }
      if (all) {
        lines_have_come();
        return true;
      }
    }
    return false;
  }

  const PushLaunch& launch_;
  const PushOperation& operation_;
  const std::uint32_t epoch_;
  const std::uint64_t sequence_;
  const PushFlags flags_;
  const std::uint32_t first_;  // byte of this block
};

// By a thread that has looked at its lines in vain for kEagerPolls times; it waits from now on.
template <class Column>
RONDO_DEVICE_CALL bool take_patiently(const PushLaunch& launch, const PushOperation& operation, std::uint32_t epoch,
                                      std::uint64_t sequence, std::uint32_t line, std::uint32_t lines) {
  DeviceSignature signature = operation.signature;
  signature.sequence = sequence;
  const Patience patience{launch.team, timer_ns(), launch.timeout_ns, signature, Protocol::ll, false};
  const PushTurn<Column> turn(launch, operation, epoch, sequence);
  RONDO_NO_UNROLL
  for (; line < lines; line += block_threads()) {
    if (!turn.take_with(patience, line)) return false;
  }
  RONDO_STAMP(folded);
  return true;
}

template <class Column>
RONDO_SMALL_KERNEL push_kernel(RONDO_KERNEL_ARGUMENT PushLaunch launch) {
  RONDO_STAMP(begin);
  await_stream();
  RONDO_STAMP(awaited);
  RegionHeader& header = *launch.header;
  std::uint32_t epoch = load<std::uint32_t>(&header.push_epoch[block_index()]);
  std::uint64_t sequence = load<std::uint64_t>(&header.block_sequence[block_index()]);
  bool alive = enter_alone(launch, Protocol::ll, false);
  alive = alive && load_relaxed(&header.failed) == 0;  // another block may just be failing: the barrier makes them one
  bool met = false;
  RONDO_NO_UNROLL
  for (int i = 0; i < launch.operations; ++i) {
    ++sequence;
    const PushOperation& operation = launch.operation[i];
    if (block_index() >= operation.channels) continue;
    met = true;
    ++epoch;
    alive = PushTurn<Column>(launch, operation, epoch, sequence).run(alive);
    alive = !block_or(!alive);  // all threads have heard of all peers, or of nobody
  }
  RONDO_STAMP(finished);
  if (!met) block_sync();  // a block with nothing to do: all threads have read the counters
  if (thread_index() == 0) store<std::uint32_t>(&header.push_epoch[block_index()], epoch);
  advance_sequence(header, sequence);
  if (!alive && thread_index() == 0) store_relaxed(&header.failed, 1);
  leave_alone(launch);
  RONDO_STAMP_END(*launch.team);
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
