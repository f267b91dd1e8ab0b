// SPDX-License-Identifier: Apache-2.0
// What ranks agree on, as kernels see it: numbers of collectives, which the device counts so that graphs replay; keys
// that travel with every step; and each rank's history of signatures, which its peers read when they wait for long.
#pragma once
#include "kernels/device/seam.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

RONDO_DEVICE bool operator==(const DeviceSignature& a, const DeviceSignature& b) {
  return a.sequence == b.sequence && a.count == b.count && a.kind == b.kind && a.shape == b.shape;
}

RONDO_DEVICE std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

// Of a collective, as the lines of LL and LL128 and arrivals carry it. A message brings its own.
RONDO_DEVICE std::uint64_t key_of(const DeviceSignature& s) {
  return mix(mix(mix(mix(1, s.sequence), s.count), s.kind), s.shape);
}

RONDO_DEVICE RegionHeader& own_header(const DeviceTeam& team) { return *team.headers[team.rank]; }

// ---- sequence numbers: collectives count from 1 ----

// Of the latest collective before this kernel.
RONDO_DEVICE std::uint64_t latest_sequence(const DeviceTeam& team) {
  return load<std::uint64_t>(&own_header(team).block_sequence[block_index()]);
}

// At the kernel's end, by all threads of every block. Block 0 counts for the blocks that this launch does without.
RONDO_DEVICE void advance_sequence(RegionHeader& header, std::uint64_t latest) {
  if (thread_index() == 0) store<std::uint64_t>(&header.block_sequence[block_index()], latest);
  if (block_index() != 0) return;
  for (unsigned block = grid_blocks() + thread_index(); block < kMaxBlocks; block += block_threads()) {
    store<std::uint64_t>(&header.block_sequence[block], latest);
  }
}

// ---- history ----

// By one thread of block 0 when a collective starts. An entry is invalidated half a history before it is written
// again, so no reader takes half an old signature for a new one: the latest kHistory / 2 can be read.
RONDO_DEVICE void write_history(RegionHeader& header, const DeviceSignature& s) {
  DeviceSignature& entry = header.history[s.sequence % kHistory];
  store_relaxed(&entry.count, s.count);
  store_relaxed(&entry.kind, s.kind);
  store_relaxed(&entry.shape, s.shape);
  store_relaxed(&header.history[(s.sequence + kHistory / 2) % kHistory].sequence, 0);
  store_release(&entry.sequence, s.sequence);
}

// Ranks of other nodes have none to read.
RONDO_DEVICE bool read_history(const RegionHeader* header, std::uint64_t sequence, DeviceSignature& found) {
  if (header == nullptr || sequence == 0) return false;
  const DeviceSignature& entry = header->history[sequence % kHistory];
  if (load_acquire(&entry.sequence) != sequence) return false;
  found = {sequence, load_acquire(&entry.count), load_acquire(&entry.kind), load_acquire(&entry.shape)};
  return load_acquire(&entry.sequence) == sequence;
}

// The latest collective, up to number `sequence`, in which this rank and the peer differ.
RONDO_DEVICE bool find_difference(const DeviceTeam& team, int peer, std::uint64_t sequence, DeviceSignature& mine,
                                  DeviceSignature& theirs) {
  for (std::uint64_t back = 0; back < kHistory / 2 && back < sequence; ++back) {
    const bool both = read_history(team.headers[team.rank], sequence - back, mine) &&
                      read_history(team.headers[peer], sequence - back, theirs);
    if (both && !(mine == theirs)) return true;
  }
  return false;
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
