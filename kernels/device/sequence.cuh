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

// By one thread of block 0 when a collective starts. Relaxed: a fence would be waited for by the whole block, in every
// collective, for the sake of those that go wrong. A reader that comes too early, or takes half an old entry for a new
// one, finds that the key does not fit, and that nothing is known; it loads nothing else by what it reads here. The key
// is turned over, since that of {1, 0, 0, 0} is 0, and so is fresh memory.
RONDO_DEVICE void write_history(RegionHeader& header, const DeviceSignature& s) {
  HistoryEntry& entry = header.history[s.sequence % kHistory];
  store_relaxed(&entry.signature.sequence, s.sequence);
  store_relaxed(&entry.signature.count, s.count);
  store_relaxed(&entry.signature.kind, s.kind);
  store_relaxed(&entry.signature.shape, s.shape);
  store_relaxed(&entry.key, ~key_of(s));
}

// Ranks of other nodes have none to read. A call, since the key takes registers and is wanted when all is lost already.
RONDO_DEVICE_CALL bool read_history(const RegionHeader* header, std::uint64_t sequence, DeviceSignature& found) {
  if (header == nullptr || sequence == 0) return false;
  const HistoryEntry& entry = header->history[sequence % kHistory];
  const DeviceSignature& s = entry.signature;
  found = {load_relaxed(&s.sequence), load_relaxed(&s.count), load_relaxed(&s.kind), load_relaxed(&s.shape)};
  return load_relaxed(&entry.key) == ~key_of(found) && found.sequence == sequence;
}

// For who waits until an entry can be read: its words come in any order. Before the look.
RONDO_DEVICE void watch_history(const RegionHeader& header, std::uint64_t sequence, SpinAny& spin) {
  const HistoryEntry& entry = header.history[sequence % kHistory];
  const std::uint64_t* const words[] = {&entry.signature.sequence, &entry.signature.count, &entry.signature.kind,
                                        &entry.signature.shape, &entry.key};
  for (const std::uint64_t* word : words) spin.watch(word, load_relaxed(word));
}

// The latest collective, up to number `sequence`, in which this rank and the peer differ.
RONDO_DEVICE bool find_difference(const DeviceTeam& team, int peer, std::uint64_t sequence, DeviceSignature& mine,
                                  DeviceSignature& theirs) {
  for (std::uint64_t back = 0; back < kHistory && back < sequence; ++back) {
    const bool both = read_history(team.headers[team.rank], sequence - back, mine) &&
                      read_history(team.headers[peer], sequence - back, theirs);
    if (both && !(mine == theirs)) return true;
  }
  return false;
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
