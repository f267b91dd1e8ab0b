// SPDX-License-Identifier: Apache-2.0
// LL128: lines of 128 bytes, 15 words and a flag, which become visible as a whole: the latency of LL at 15/16 of the
// bandwidth, where the hardware promises it (one GPU, NVLink). A warp moves four lines at a time, 16 bytes a lane; the
// last lane of each eight has the flag. The first word of a slot is the key.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct LL128 {
  static constexpr Protocol kProtocol = Protocol::ll128;
  static constexpr bool kWaitsInside = true;
  static constexpr bool kRefers = false;

  RONDO_DEVICE static const std::uint64_t* arrival_word(std::byte*, const std::byte* slot) {
    return reinterpret_cast<const std::uint64_t*>(slot + 120);
  }
  RONDO_DEVICE static std::uint64_t posted(std::uint64_t word, std::uint64_t step) {
    return word == step + 1 ? step + 1 : step;
  }

  RONDO_DEVICE_CALL static bool move(const FifoBlock& block, const Slice& slice, Crew crew) {
    const Active& active = *slice.active;
    const std::uint32_t bytes = slice.bytes, groups = groups_of(bytes);
    const std::byte* from = slice.from_slot;
    std::byte* const to = slice.to_slot;
    for (std::uint32_t group = crew.thread / 32; group < groups; group += crew.threads / 32) {
      const Lane lane(group);
      u64x2 value[1] = {{0, 0}}, mine[1] = {{0, 0}};
      if (slice.local != nullptr) mine[0] = lane.load_pair(slice.local, bytes);
      if (from != nullptr) {
        const Polled polled = poll(block, from + lane.line_offset, slice.from_step, active.from, active.signature);
        if (!polled.arrived) return false;
        value[0] = {polled.x, polled.y};
        if (group == 0 && !check_key(block, polled.x, slice.from_step, active.from, active.signature, active.key)) {
          return false;
        }
      }
      compute(block, slice, value, mine);
      if (to != nullptr) {
        if (lane.has_key) value[0].x = active.key;
        ll128_store(to + lane.line_offset, {value[0].x, lane.has_flag ? slice.to_step + 1 : value[0].y});
      }
      if (slice.store != nullptr) lane.store_pair(slice.store, bytes, value[0]);
    }
    return true;
  }

  RONDO_DEVICE static void post(std::uint64_t*, std::uint64_t) {}

  RONDO_DEVICE_CALL static bool fold(const FifoBlock& block, const FoldSlice& slice) {
    const std::uint32_t groups = groups_of(slice.bytes);
    for (std::uint32_t group = thread_index() / 32; group < groups; group += block_threads() / 32) {
      const Lane lane(group);
      u64x2 mine = lane.load_pair(slice.local, slice.bytes);
      if (slice.scale) mine = multiplied(block.arithmetic, mine);
      if (!await_all(block, lane.line_offset, group == 0)) return false;
      const u64x2 sum = fold_word<u64x2>(block, [&](int rank) {  // they are there still
        return rank == block.rank ? mine : ll128_load(block.source[rank].slot + lane.line_offset);
      });
      lane.store_pair(slice.store, slice.bytes, sum);
    }
    return true;
  }

 private:
  static constexpr int kBatch = 4;           // ranks whose lines a warp looks at together
  static constexpr unsigned kFirstFlag = 7;  // the lane that has the flag of the first line
  // What a lane has of a group of lines: two words of a slot, of which the first may be the key, the second the flag.
  struct Lane {
    bool has_key, has_flag;
    std::uint32_t line_offset;  // bytes in the slot
    std::uint32_t first;        // word of the data; the key is word -1
    RONDO_DEVICE explicit Lane(std::uint32_t group) {
      const std::uint32_t lane = lane_index(), place = lane % 8;
      has_key = group == 0 && lane == 0;
      has_flag = place == 7;
      line_offset = group * 512 + lane * 16;
      first = (group * 4 + lane / 8) * 15 + place * 2 - 1;
    }
    RONDO_DEVICE u64x2 load_pair(const std::byte* p, std::uint32_t bytes) const {
      const std::uint32_t x = first * 8, y = x + 8;
      return {!has_key && x < bytes ? load_word(p + x, bytes - x) : 0,
              !has_flag && y < bytes ? load_word(p + y, bytes - y) : 0};
    }
    RONDO_DEVICE void store_pair(std::byte* p, std::uint32_t bytes, u64x2 pair) const {
      const std::uint32_t x = first * 8, y = x + 8;
      if (!has_key && x < bytes) store_word(p + x, bytes - x, pair.x);
      if (!has_flag && y < bytes) store_word(p + y, bytes - y, pair.y);
    }
  };

  RONDO_DEVICE static std::uint32_t groups_of(std::uint32_t bytes) { return ((bytes + 7) / 8 + 1 + 59) / 60; }

  struct Polled {
    std::uint64_t x, y;
    bool arrived;
  };
  // By a whole warp, which stays together: the line is loaded by all or by none.
  RONDO_DEVICE_CALL static Polled poll(const FifoBlock& block, const std::byte* line, std::uint64_t step, int peer,
                                       const DeviceSignature& signature) {
    const bool has_flag = lane_index() % 8 == 7;
    Spin spin;
    std::uint64_t began = 0;
    for (;;) {
      const u64x2 seen = ll128_load(line);
      const bool missing = has_flag && seen.y != step + 1;
      if (!warp_any(missing)) {
        lines_have_come();
        return {seen.x, seen.y, true};
      }
      bool gave_up = false;
      if (missing && spin.pause(line + 8, seen.y, abort_word(block.patience))) {
        began = look_up(block.patience, peer, step, signature, began);
        gave_up = began == kGaveUp;
      }
      if (warp_any(gave_up)) return {0, 0, false};
    }
  }
  // By a whole warp: until its lines of all ranks have come, in batches that are on their way at once; and whether the
  // keys among them are right. False: gave up.
  RONDO_DEVICE_CALL static bool await_all(const FifoBlock& block, std::uint32_t offset, bool has_keys) {
    const bool has_flag = lane_index() % 8 == kFirstFlag;
    SpinAny spin;
    std::uint64_t began = 0;
    for (int first = 0, waits_for = kNobody; first < block.world_size;) {
      u64x2 seen[kBatch];
      RONDO_UNROLL
      for (int k = 0; k < kBatch; ++k) {
        if (awaits(block, first + k)) seen[k] = ll128_load(block.source[first + k].slot + offset);
      }
      spin.begin();
      std::uint32_t missing = 0;  // a bit for each
      RONDO_UNROLL
      for (int k = kBatch - 1; k >= 0; --k) {
        if (!has_flag || !awaits(block, first + k) || seen[k].y == block.source[first + k].step + 1) continue;
        spin.watch(reinterpret_cast<const std::uint64_t*>(block.source[first + k].slot + offset + 8), seen[k].y);
        missing |= 1u << k;
      }
      if (has_keys && !check_keys(block, first, seen, ~shuffle(missing, kFirstFlag))) return false;
      if (!warp_any(missing != 0)) {
        lines_have_come();
        first += kBatch;
        continue;
      }
      bool gave_up = false;
      if (missing != 0 && spin.pause(abort_word(block.patience))) {
        int peer = first;
        while ((missing >> (peer - first) & 1) == 0) ++peer;
        if (peer != waits_for) began = 0;
        waits_for = peer;
        began = look_up(block.patience, peer, block.source[peer].step, block.patience.operation, began);
        gave_up = began == kGaveUp;
      }
      if (warp_any(gave_up)) return false;
    }
    return true;
  }
  RONDO_DEVICE static bool awaits(const FifoBlock& block, int peer) {
    return peer < block.world_size && peer != block.rank;
  }
  // By the warp that has the first group, whose first lane has the keys. `come`: whose lines have come, a bit for each.
  RONDO_DEVICE static bool check_keys(const FifoBlock& block, int first, const u64x2 (&seen)[kBatch],
                                      std::uint32_t come) {
    int differs = kNobody;
    RONDO_UNROLL
    for (int k = kBatch - 1; k >= 0; --k) {
      if (awaits(block, first + k) && (come >> k & 1) != 0 && seen[k].x != block.key) differs = first + k;
    }
    const bool mine = lane_index() == 0 && differs != kNobody;
    if (mine) {
      give_up_mismatch(block.patience, differs, block.source[differs].step, block.patience.operation,
                       DeviceSignature{});
    }
    return !warp_any(mine);
  }
  // The same of a slice's key.
  RONDO_DEVICE static bool check_key(const FifoBlock& block, std::uint64_t found, std::uint64_t step, int peer,
                                     const DeviceSignature& signature, std::uint64_t key) {
    const bool differs = lane_index() == 0 && found != key;
    if (differs) give_up_mismatch(block.patience, peer, step, signature, DeviceSignature{});
    return !warp_any(differs);
  }
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
