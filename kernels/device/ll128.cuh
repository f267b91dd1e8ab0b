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
    const DeviceSignature& signature = block.patience.operation;
    const std::uint32_t groups = groups_of(slice.bytes);
    bool fine = true;
    for (std::uint32_t group = thread_index() / 32; fine && group < groups; group += block_threads() / 32) {
      const Lane lane(group);
      u64x2 mine = lane.load_pair(slice.local, slice.bytes);
      if (slice.scale) mine = multiplied(block.arithmetic, mine);
      const u64x2 sum = fold_word<u64x2>(block, [&](int rank) {
        if (rank == block.rank || !fine) return mine;
        const Source& source = block.source[rank];
        const Polled polled = poll(block, source.slot + lane.line_offset, source.step, rank, signature);
        fine = polled.arrived;
        if (fine && group == 0) fine = check_key(block, polled.x, source.step, rank, signature, block.key);
        return u64x2{polled.x, polled.y};
      });
      if (fine) lane.store_pair(slice.store, slice.bytes, sum);
    }
    return fine;
  }

 private:
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
  // By the warp that has the first group.
  RONDO_DEVICE static bool check_key(const FifoBlock& block, std::uint64_t found, std::uint64_t step, int peer,
                                     const DeviceSignature& signature, std::uint64_t key) {
    const bool differs = lane_index() == 0 && found != key;
    if (differs) give_up_mismatch(block.patience, peer, step, signature, DeviceSignature{});
    return !warp_any(differs);
  }
};

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
