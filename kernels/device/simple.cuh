// SPDX-License-Identifier: Apache-2.0
// Simple: a slot is a header and data, published by one word with release after the whole block has written it. Whole
// bandwidth; a barrier and a round of release and acquire per step.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct Simple {
  static constexpr Protocol kProtocol = Protocol::simple;
  static constexpr bool kWaitsInside = false;  // steps begin when their data is there
  static constexpr bool kRefers = true;        // steps may say where their data lies

  // The word that tells whether step `step` is in its slot, and its value read as: so many steps are.
  RONDO_DEVICE static const std::uint64_t* arrival_word(std::byte* mailbox, const std::byte*) {
    return &mailbox_at(mailbox).posted;
  }
  RONDO_DEVICE static std::uint64_t posted(std::uint64_t word, std::uint64_t) { return word; }

  // By all threads; false: this thread gave up.
  RONDO_DEVICE_CALL static bool move(const FifoBlock& block, const Slice& slice, Crew crew) {
    const unsigned threads = crew.threads;
    const Ends ends(slice);
    for (std::uint32_t first = crew.thread; first * 16 < ends.bytes; first += kBatch * threads) {
      u64x2 value[kBatch], mine[kBatch];
      const bool whole = ends.wide && (first + (kBatch - 1) * threads + 1) * 16 <= ends.bytes;
      load_batch(ends, first, threads, whole, value, mine);
      compute(block, slice, value, mine);
      store_batch(ends, first, threads, whole, value);
    }
    if (crew.thread + 1 != threads) return true;
    if (ends.sent != nullptr) write_header(slice);
    return slice.from_slot == nullptr || check_header(block, slice.from_slot, slice.active->from, slice.from_step,
                                                      slice.active->signature, slice.bytes);
  }

  RONDO_DEVICE static void post(std::uint64_t* word, std::uint64_t step) { store_release(word, step + 1); }

  RONDO_DEVICE_CALL static bool fold(const FifoBlock& block, const FoldSlice& slice) {
    bool fine = true;
    for (std::uint32_t at = thread_index() * 16; at < slice.bytes; at += block_threads() * 16) {
      u64x2 mine = load_vector(slice.local + at, slice.bytes - at);
      if (slice.scale) mine = multiplied(block.arithmetic, mine);
      const u64x2 sum = fold_word<u64x2>(block, [&](int rank) {
        return rank == block.rank ? mine : load<u64x2>(block.source[rank].slot + kLine + at);
      });
      store_vector(slice.store + at, slice.bytes - at, sum);
    }
    for (int peer = static_cast<int>(thread_index()); peer < block.world_size;
         peer += static_cast<int>(block_threads())) {
      if (peer == block.rank) continue;
      const Source& source = block.source[peer];
      fine = check_header(block, source.slot, peer, source.step, block.patience.operation, slice.bytes) && fine;
    }
    return fine;
  }

 private:
  static constexpr unsigned kBatch = 4;  // 16-byte loads in flight, of each source

  struct Ends {  // of a slice, in registers; null: none
    const std::byte *local, *received;
    std::byte *store, *sent;
    std::uint32_t bytes;
    bool wide;  // the user's memory is aligned to 16 bytes
    RONDO_DEVICE explicit Ends(const Slice& slice)
        : local(slice.local),
          received(slice.from_slot == nullptr || slice.refers ? nullptr : slice.from_slot + kLine),
          store(slice.store),
          sent(slice.to_slot == nullptr ? nullptr : slice.to_slot + kLine),
          bytes(slice.active->window < 0 ? slice.bytes : 0),
          wide(is_aligned(local, 16) && is_aligned(store, 16)) {}
  };

  // The vectors first, first + threads, ... `whole`: all of them, without a look at lengths and alignments.
  RONDO_DEVICE static void load_batch(const Ends& ends, std::uint32_t first, unsigned threads, bool whole,
                                      u64x2 (&value)[kBatch], u64x2 (&mine)[kBatch]) {
    if (whole) {
      RONDO_UNROLL
      for (unsigned k = 0; k < kBatch; ++k) {
        value[k] = mine[k] = {0, 0};
        if (ends.received != nullptr) value[k] = load<u64x2>(ends.received + (first + k * threads) * 16);
      }
      RONDO_UNROLL
      for (unsigned k = 0; k < kBatch; ++k) {
        if (ends.local != nullptr) mine[k] = load<u64x2>(ends.local + (first + k * threads) * 16);
      }
      return;
    }
    RONDO_UNROLL
    for (unsigned k = 0; k < kBatch; ++k) {
      const std::uint32_t at = (first + k * threads) * 16;
      value[k] = mine[k] = {0, 0};
      if (at >= ends.bytes) continue;
      if (ends.received != nullptr) value[k] = load<u64x2>(ends.received + at);
      if (ends.local != nullptr) mine[k] = load_vector(ends.local + at, ends.bytes - at);
    }
  }
  RONDO_DEVICE static void store_batch(const Ends& ends, std::uint32_t first, unsigned threads, bool whole,
                                       const u64x2 (&value)[kBatch]) {
    RONDO_UNROLL
    for (unsigned k = 0; k < kBatch; ++k) {
      const std::uint32_t at = (first + k * threads) * 16;
      if (at >= ends.bytes) continue;
      if (ends.sent != nullptr) store<u64x2>(ends.sent + at, value[k]);
      if (ends.store == nullptr) continue;
      if (whole) {
        store<u64x2>(ends.store + at, value[k]);
      } else {
        store_vector(ends.store + at, ends.bytes - at, value[k]);
      }
    }
  }

  RONDO_DEVICE static void write_header(const Slice& slice) {
    const Active& active = *slice.active;
    SlotHeader& header = *reinterpret_cast<SlotHeader*>(slice.to_slot);
    header.signature = active.signature;
    header.step = slice.to_step;
    header.bytes = slice.bytes;
    header.offset = active.offset + static_cast<std::uint64_t>(slice.local - active.local);
    header.window = active.window;
  }
  RONDO_DEVICE_CALL static bool check_header(const FifoBlock& block, const std::byte* slot, int peer,
                                             std::uint64_t step, const DeviceSignature& mine, std::uint64_t bytes) {
    const SlotHeader& header = *reinterpret_cast<const SlotHeader*>(slot);
    if (header.signature == mine && header.bytes == bytes && header.step == step) return true;
    give_up_mismatch(block.patience, peer, step, mine, header.signature);
    return false;
  }
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
