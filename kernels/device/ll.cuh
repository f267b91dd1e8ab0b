// SPDX-License-Identifier: Apache-2.0
// LL: 16-byte lines {data, flag, data, flag}, each word of 8 bytes whole: whoever sees both flags has the data. No
// barrier and no release between sender and receiver, at half the bandwidth. The first line of a slot carries the key.
// A thread sends the key on only when it has received it, so a key in a slot means that all its lines will come.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct LL {
  static constexpr Protocol kProtocol = Protocol::ll;
  static constexpr bool kWaitsInside = true;  // a step alone begins at once and waits line by line
  static constexpr bool kRefers = false;

  RONDO_DEVICE static const std::uint64_t* arrival_word(std::byte*, const std::byte* slot) {
    return reinterpret_cast<const std::uint64_t*>(slot);
  }
  RONDO_DEVICE static std::uint64_t posted(std::uint64_t word, std::uint64_t step) {
    return word >> 32 == flag_of(step) ? step + 1 : step;
  }

  RONDO_DEVICE_CALL static bool move(const FifoBlock& block, const Slice& slice, Crew crew) {
    const Active& active = *slice.active;
    const unsigned thread = crew.thread, threads = crew.threads;
    const std::uint32_t bytes = slice.bytes, words = (bytes + 7) / 8;
    const std::byte* from = slice.from_slot;
    std::byte* const to = slice.to_slot;
    const std::uint64_t flag = flag_of(slice.to_step);
    if (thread == 0) {
      if (from != nullptr && !check_key(block, from, slice.from_step, active.from, active.signature, active.key)) {
        return false;
      }
      if (to != nullptr) ll_store(to, line_of(active.key, flag));
    }
    // The thread of the key comes last, so that in the smallest messages it has no other line.
    for (std::uint32_t i = thread == 0 ? threads - 1 : thread - 1; i < words; i += threads) {
      std::uint64_t value[1] = {0}, mine[1] = {0};
      if (slice.local != nullptr) mine[0] = load_word(slice.local + i * 8, bytes - i * 8);
      if (from != nullptr) {
        const Polled polled = poll(block, from + (i + 1) * 16, slice.from_step, active.from, active.signature);
        if (!polled.arrived) return false;
        value[0] = polled.word;
      }
      compute(block, slice, value, mine);
      if (to != nullptr) ll_store(to + (i + 1) * 16, line_of(value[0], flag));
      if (slice.store != nullptr) store_word(slice.store + i * 8, bytes - i * 8, value[0]);
    }
    if (to != nullptr && is_refreshing(block, slice.to_step)) refresh(block, to, words + 1, flag, crew);
    return true;
  }

  RONDO_DEVICE static void post(std::uint64_t*, std::uint64_t) {}

  RONDO_DEVICE_CALL static bool fold(const FifoBlock& block, const FoldSlice& slice) {
    const DeviceSignature& signature = block.patience.operation;
    // The last threads look at keys, so that in the smallest messages they have no other line.
    for (int peer = static_cast<int>(block_threads() - 1 - thread_index()); peer < block.world_size;
         peer += static_cast<int>(block_threads())) {
      const Source& source = block.source[peer];
      if (peer != block.rank && !check_key(block, source.slot, source.step, peer, signature, block.key)) return false;
    }
    for (std::uint32_t i = thread_index(); i * 8 < slice.bytes; i += block_threads()) {
      std::uint64_t mine = load_word(slice.local + i * 8, slice.bytes - i * 8);
      if (slice.scale) mine = multiplied(block.arithmetic, mine);
      const std::uint32_t line = (i + 1) * 16;
      if (!await_all(block, line)) return false;
      const std::uint64_t sum = fold_word<std::uint64_t>(block, [&](int rank) {  // they are there still
        return rank == block.rank ? mine : word_of(ll_load(block.source[rank].slot + line));
      });
      store_word(slice.store + i * 8, slice.bytes - i * 8, sum);
    }
    return true;
  }

 private:
  static constexpr int kBatch = 4;  // ranks whose lines a thread looks at together
  // Never 0, which fresh memory holds, and again the same after 2^31 steps only.
  RONDO_DEVICE static std::uint64_t flag_of(std::uint64_t step) { return (step & 0x7fffffffu) | 0x80000000u; }
  RONDO_DEVICE static bool has_come(u64x2 line, std::uint64_t flag) {
    return line.x >> 32 == flag && line.y >> 32 == flag;
  }
  RONDO_DEVICE static std::uint64_t word_of(u64x2 line) { return (line.x & 0xffffffffu) | line.y << 32; }
  RONDO_DEVICE static u64x2 line_of(std::uint64_t word, std::uint64_t flag) {
    return {(word & 0xffffffffu) | flag << 32, word >> 32 | flag << 32};
  }

  // A line that short slices do not reach would keep its flag until the flag comes round again, and be taken for new.
  // So now and then a slot's other lines get the flag too.
  static constexpr std::uint64_t kRefreshEvery = 1u << 20;
  RONDO_DEVICE static bool is_refreshing(const FifoBlock& block, std::uint64_t step) {
    return step % kRefreshEvery < block.slots;
  }
  RONDO_DEVICE static void refresh(const FifoBlock& block, std::byte* slot, std::uint32_t line, std::uint64_t flag,
                                   Crew crew) {
    for (line += crew.thread; line < block.slot_bytes / 16; line += crew.threads) {
      ll_store(slot + line * 16, line_of(0, flag));
    }
  }

  struct Polled {
    std::uint64_t word;
    bool arrived;
  };
  RONDO_DEVICE_CALL static Polled poll(const FifoBlock& block, const std::byte* line, std::uint64_t step, int peer,
                                       const DeviceSignature& signature) {
    const std::uint64_t flag = flag_of(step);
    Spin spin;
    std::uint64_t began = 0;
    for (;;) {
      const u64x2 seen = ll_load(line);
      if (has_come(seen, flag)) {
        lines_have_come();
        return {word_of(seen), true};
      }
      if (!spin.pause(line, seen, abort_word(block.patience))) continue;
      began = look_up(block.patience, peer, step, signature, began);
      if (began == kGaveUp) return {0, false};
    }
  }
  // Until the lines at `offset` of all ranks have come, in batches that are on their way at once. False: gave up.
  RONDO_DEVICE_CALL static bool await_all(const FifoBlock& block, std::uint32_t offset) {
    SpinAny spin;
    std::uint64_t began = 0;
    for (int first = 0, waits_for = kNobody; first < block.world_size;) {
      u64x2 seen[kBatch];
      RONDO_UNROLL
      for (int k = 0; k < kBatch; ++k) {
        if (awaits(block, first + k)) seen[k] = ll_load(block.source[first + k].slot + offset);
      }
      spin.begin();
      int missing = kNobody;
      RONDO_UNROLL
      for (int k = kBatch - 1; k >= 0; --k) {
        if (!awaits(block, first + k) || has_come(seen[k], flag_of(block.source[first + k].step))) continue;
        spin.watch(reinterpret_cast<const u64x2*>(block.source[first + k].slot + offset), seen[k]);
        missing = first + k;
      }
      if (missing == kNobody) {
        lines_have_come();
        first += kBatch;
        continue;
      }
      if (!spin.pause(abort_word(block.patience))) continue;
      if (missing != waits_for) began = 0;
      waits_for = missing;
      began = look_up(block.patience, missing, block.source[missing].step, block.patience.operation, began);
      if (began == kGaveUp) return false;
    }
    return true;
  }
  RONDO_DEVICE static bool awaits(const FifoBlock& block, int peer) {
    return peer < block.world_size && peer != block.rank;
  }
  RONDO_DEVICE static bool check_key(const FifoBlock& block, const std::byte* slot, std::uint64_t step, int peer,
                                     const DeviceSignature& signature, std::uint64_t key) {
    const Polled polled = poll(block, slot, step, peer, signature);
    if (polled.arrived && polled.word != key)
      give_up_mismatch(block.patience, peer, step, signature, DeviceSignature{});
    return polled.arrived && polled.word == key;
  }
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
