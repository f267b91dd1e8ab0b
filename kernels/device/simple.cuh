// SPDX-License-Identifier: Apache-2.0
// Simple: a slot is a header and data, published by one word with release after the whole block has written it. Whole
// bandwidth; a barrier and a round of release and acquire per step.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

struct Simple {
  static constexpr Protocol kProtocol = Protocol::simple;
  static constexpr bool kWaitsInside = false;  // steps begin when their data is there

  // The word that tells whether step `step` is in its slot, and its value read as: so many steps are.
  RONDO_DEVICE static const std::uint64_t* arrival_word(std::byte* mailbox, const std::byte*) {
    return &mailbox_at(mailbox).posted;
  }
  RONDO_DEVICE static std::uint64_t posted(std::uint64_t word, std::uint64_t) { return word; }

  // By all threads; false: this thread gave up.
  RONDO_DEVICE_CALL static bool move(const FifoBlock& block) {
    const Slice& slice = block.slice;
    const unsigned threads = block_threads();
    const std::uint32_t bytes = slice.bytes, vectors = (bytes + 15) / 16;
    const std::byte* local = slice.local;
    std::byte* const store_at = slice.store;
    const bool receives = slice.from_slot != nullptr, sends = slice.to_slot != nullptr;
    const std::byte* received = receives ? slice.from_slot + kLine : nullptr;
    std::byte* const sent = sends ? slice.to_slot + kLine : nullptr;
    const bool wide = is_aligned(local, 16) && is_aligned(store_at, 16);
    for (std::uint32_t first = thread_index(); first < vectors; first += kBatch * threads) {
      u64x2 value[kBatch], mine[kBatch];
      const bool whole = wide && (first + (kBatch - 1) * threads + 1) * 16 <= bytes;
      if (whole) {
        RONDO_UNROLL
        for (unsigned k = 0; k < kBatch; ++k) {
          value[k] = mine[k] = {0, 0};
          if (receives) value[k] = load<u64x2>(received + (first + k * threads) * 16);
        }
        RONDO_UNROLL
        for (unsigned k = 0; k < kBatch; ++k) {
          if (local != nullptr) mine[k] = load<u64x2>(local + (first + k * threads) * 16);
        }
      } else {
        RONDO_UNROLL
        for (unsigned k = 0; k < kBatch; ++k) {
          const std::uint32_t at = (first + k * threads) * 16;
          value[k] = mine[k] = {0, 0};
          if (receives && at < bytes) value[k] = load<u64x2>(received + at);
          if (local != nullptr && at < bytes) mine[k] = load_vector(local + at, bytes - at);
        }
      }
      compute(block, slice, value, mine);
      RONDO_UNROLL
      for (unsigned k = 0; k < kBatch; ++k) {
        const std::uint32_t at = (first + k * threads) * 16;
        if (at >= bytes) continue;
        if (sends) store<u64x2>(sent + at, value[k]);
        if (store_at == nullptr) continue;
        if (whole) {
          store<u64x2>(store_at + at, value[k]);
        } else {
          store_vector(store_at + at, bytes - at, value[k]);
        }
      }
    }
    if (thread_index() + 1 != threads) return true;
    if (sends) write_header(*reinterpret_cast<SlotHeader*>(slice.to_slot), slice.signature, slice.to_step, bytes);
    return !receives || check_header(block, slice.from_slot, slice.from, slice.from_step, slice.signature, bytes);
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

  RONDO_DEVICE static void write_header(SlotHeader& header, const Signature& signature, std::uint64_t step,
                                        std::uint64_t bytes) {
    header.signature = signature;
    header.step = step;
    header.bytes = bytes;
  }
  RONDO_DEVICE_CALL static bool check_header(const FifoBlock& block, const std::byte* slot, int peer,
                                             std::uint64_t step, const Signature& mine, std::uint64_t bytes) {
    const SlotHeader& header = *reinterpret_cast<const SlotHeader*>(slot);
    if (header.signature == mine && header.bytes == bytes && header.step == step) return true;
    give_up_mismatch(block.patience, peer, step, mine, header.signature);
    return false;
  }
};

}  // namespace rondo::kernels::device::inline RONDO_SEAM
