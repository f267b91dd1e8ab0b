// SPDX-License-Identifier: Apache-2.0
// Kernels that do nothing, or one thing: what no kernel of the library can be faster than.
#pragma once
#include "kernels/device/seam.cuh"
#include "tools/gpu_check/kernels.hpp"

namespace rondo::gpu_check::inline RONDO_SEAM {

using namespace kernels::device;

RONDO_KERNEL empty_small(RONDO_KERNEL_ARGUMENT SmallArgument) {}
RONDO_KERNEL empty_large(RONDO_KERNEL_ARGUMENT LargeArgument) {}

// Time to give up? Says so to the host.
RONDO_DEVICE bool gives_up(std::uint64_t start_ns, std::uint64_t* failed) {
  if (timer_ns() - start_ns < kPatienceNs) return false;
  store_relaxed(failed, std::uint64_t{1});
  return true;
}

// ---- ping ----

RONDO_DEVICE std::uint64_t add_floats(std::uint64_t a, std::uint64_t b) {
  struct Pair {
    float low, high;
  };
  const auto x = __builtin_bit_cast(Pair, a), y = __builtin_bit_cast(Pair, b);
  return __builtin_bit_cast(std::uint64_t, Pair{x.low + y.low, x.high + y.high});
}

// All lines of word `i` at once, until they carry the flag. False: gave up.
RONDO_DEVICE bool poll_lines(const Ping& ping, const std::byte* lines, std::uint64_t flag, std::uint64_t start_ns,
                             u64x2 (&seen)[kPingRanks]) {
  Spin spin;
  for (;;) {
    int missing = -1;
    RONDO_UNROLL
    for (int rank = 0; rank < kPingRanks; ++rank) {
      if (rank >= ping.ranks || rank == ping.rank) continue;
      seen[rank] = ll_load(lines + static_cast<std::size_t>(rank) * ping.words * 16);
      if (seen[rank].x >> 32 != flag || seen[rank].y >> 32 != flag) missing = rank;
    }
    if (missing < 0) return true;
    const std::byte* const line = lines + static_cast<std::size_t>(missing) * ping.words * 16;
    const u64x2 unlike = ll_load(line);  // what the host executor waits to change
    if (unlike.x >> 32 == flag && unlike.y >> 32 == flag) continue;
    if (spin.pause(line, unlike, nullptr) && gives_up(start_ns, ping.failed)) return false;
  }
}

RONDO_KERNEL ping_all(RONDO_KERNEL_ARGUMENT Ping ping) {
  const std::uint64_t epoch = load<std::uint64_t>(ping.epoch) + 1, flag = epoch & 0xffffffffu;
  const std::uint64_t start_ns = timer_ns();
  const std::size_t ranks = static_cast<std::size_t>(ping.ranks);
  const std::size_t half = (epoch & 1) * ranks * ping.words;
  for (std::uint32_t i = thread_index(); i < ping.words; i += block_threads()) {
    const std::uint64_t mine = load<std::uint64_t>(ping.input + i);
    const u64x2 line = {(mine & 0xffffffffu) | flag << 32, mine >> 32 | flag << 32};
    RONDO_UNROLL
    for (int peer = 0; peer < kPingRanks; ++peer) {
      if (peer >= ping.ranks || peer == ping.rank) continue;
      ll_store(ping.inbox[peer] + (half + static_cast<std::size_t>(ping.rank) * ping.words + i) * 16, line);
    }
    u64x2 seen[kPingRanks];
    if (!poll_lines(ping, ping.inbox[ping.rank] + (half + i) * 16, flag, start_ns, seen)) break;
    std::uint64_t sum = 0;
    RONDO_UNROLL
    for (int rank = 0; rank < kPingRanks; ++rank) {
      if (rank >= ping.ranks) continue;
      const std::uint64_t word = rank == ping.rank ? mine : (seen[rank].x & 0xffffffffu) | seen[rank].y << 32;
      sum = rank == 0 ? word : add_floats(sum, word);
    }
    store<std::uint64_t>(ping.output + i, sum);
  }
  block_sync();
  if (thread_index() == 0) store<std::uint64_t>(ping.epoch, epoch);
}

// ---- hops ----

template <HopBy kBy>
RONDO_DEVICE void put(std::uint64_t* word, std::uint64_t value) {
  if constexpr (kBy == HopBy::system) store_release(word, value);
  if constexpr (kBy == HopBy::gpu) store_release_gpu(word, value);
  if constexpr (kBy == HopBy::lines) ll_store(word, {value, value});
}
template <HopBy kBy>
RONDO_DEVICE bool await(const std::uint64_t* word, std::uint64_t value, std::uint64_t* failed) {
  const std::uint64_t start_ns = timer_ns();
  Spin spin;
  for (;;) {
    u64x2 seen{};
    if constexpr (kBy == HopBy::lines) {
      seen = ll_load(word);
    } else {
      seen.x = seen.y = kBy == HopBy::gpu ? load_acquire_gpu(word) : load_acquire(word);
    }
    if (seen.x == value && seen.y == value) return true;
    const bool paused = kBy == HopBy::lines ? spin.pause(word, seen, nullptr) : spin.pause(word, seen.x, nullptr);
    if (paused && gives_up(start_ns, failed)) return false;
  }
}
template <HopBy kBy>
RONDO_DEVICE void hop_rounds(const Hop& hop) {
  const bool first = block_index() == 0;
  std::uint64_t* const out = hop.words + (first ? 0 : kHopApart);
  const std::uint64_t* const in = hop.words + (first ? kHopApart : 0);
  const std::uint64_t before = load<std::uint64_t>(out);  // of the launches before: the same in both
  for (std::uint64_t i = before + 1; i <= before + hop.rounds; ++i) {
    if (first) put<kBy>(out, i);
    if (!await<kBy>(in, i, hop.failed)) return;
    if (!first) put<kBy>(out, i);
  }
}
RONDO_KERNEL hop_between(RONDO_KERNEL_ARGUMENT Hop hop) {
  if (thread_index() != 0) return;
  if (hop.by == HopBy::system) hop_rounds<HopBy::system>(hop);
  if (hop.by == HopBy::gpu) hop_rounds<HopBy::gpu>(hop);
  if (hop.by == HopBy::lines) hop_rounds<HopBy::lines>(hop);
}

// ---- fences and copies ----

RONDO_KERNEL fence_often(RONDO_KERNEL_ARGUMENT Fences fences) {
  if (thread_index() != 0) return;
  for (std::uint64_t i = 0; i < fences.rounds; ++i) {
    store_relaxed(fences.words + i % kFenceWords, i);
    if (fences.fence == Fence::gpu) fence_gpu();
    if (fences.fence == Fence::system) fence_system();
  }
}

RONDO_KERNEL copy_all(RONDO_KERNEL_ARGUMENT Copy copy) {
  constexpr int kInFlight = 8;
  const std::uint64_t threads = block_threads(), stride = std::uint64_t{grid_blocks()} * threads * kInFlight;
  for (std::uint64_t i = block_index() * threads * kInFlight + thread_index(); i < copy.vectors; i += stride) {
    u64x2 value[kInFlight] = {};
    RONDO_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      const std::uint64_t at = i + static_cast<unsigned>(k) * threads;
      if (at < copy.vectors) value[k] = load<u64x2>(copy.from + at * 16);
    }
    RONDO_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      const std::uint64_t at = i + static_cast<unsigned>(k) * threads;
      if (at < copy.vectors) store<u64x2>(copy.to + at * 16, value[k]);
    }
  }
}

}  // namespace rondo::gpu_check::inline RONDO_SEAM
