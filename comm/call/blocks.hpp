// SPDX-License-Identifier: Apache-2.0
// What every rank knows of the blocks in a call's larger buffer.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <rondo/collective.hpp>

namespace rondo::comm {

inline std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

// Elements of each rank's block; empty where all are equally long, or there are none. all_to_all_v: of those sent.
inline std::span<const std::size_t> counts_of(const Call& call) {
  const CollectiveRow& row = row_of(call.collective);
  if (row.send == Extent::counts) return call.send_counts;
  return row.recv == Extent::counts ? call.recv_counts : std::span<const std::size_t>{};
}

// Elements of a rank's larger buffer.
inline std::size_t larger_count(const Call& call, int world_size) {
  const auto counts = counts_of(call);
  if (!counts.empty()) return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const CollectiveRow& row = row_of(call.collective);
  return row.send == Extent::world || row.recv == Extent::world ? call.count * as_size(world_size) : call.count;
}

// Elements of one buffer, whose blocks have these counts.
inline std::size_t elements_of(const Call& call, Extent extent, std::span<const std::size_t> counts, int world_size) {
  switch (extent) {
    case Extent::none:
      break;
    case Extent::one:
      return call.count;
    case Extent::world:
      return call.count * as_size(world_size);
    case Extent::counts:
      return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  return 0;
}

// In place, elements from where a rank's send buffer begins to where its receive buffer does: a rank's block of the one
// is the other. Not where its buffers are two.
inline std::ptrdiff_t in_place_distance(const Call& call, int rank) {
  const CollectiveRow& row = row_of(call.collective);
  const auto counts = counts_of(call).first(counts_of(call).empty() ? 0 : as_size(rank));
  const std::size_t before = counts.data() == nullptr ? as_size(rank) * call.count
                                                      : std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  if (row.send == row.recv || row.send == Extent::none || row.recv == Extent::none) return 0;
  return row.send == Extent::one ? -static_cast<std::ptrdiff_t>(before) : static_cast<std::ptrdiff_t>(before);
}

// Whether a rank's smaller buffer lies in its larger one, of so many bytes, wherever its block does.
inline bool is_in_place(const Call& call, std::size_t larger) {
  const CollectiveRow& row = row_of(call.collective);
  if (row.send == row.recv || call.send == call.recv) return call.send == call.recv;
  const auto send = reinterpret_cast<std::uintptr_t>(call.send), recv = reinterpret_cast<std::uintptr_t>(call.recv);
  return row.send == Extent::one ? send - recv < larger : recv - send < larger;  // beyond any size where it lies before
}

// How much of the caches a call wants, in bytes, as `larger` (how long a rank's larger buffer is; so many ranks share
// them): all that it reads, and a third of what it writes elsewhere, which can be stored past them at a cost.
inline std::size_t cache_demand(const Call& call, std::size_t larger, int ranks) {
  const CollectiveRow& row = row_of(call.collective);
  const auto all = [&](Extent extent, bool at_root) {
    if (extent == Extent::none) return std::size_t{0};
    const bool is_block = extent == Extent::one && row.send != row.recv;
    const std::size_t one = is_block ? larger / as_size(ranks) : larger;
    return at_root ? one : one * as_size(ranks);
  };
  const bool in_place = row.send_at_root == row.recv_at_root && is_in_place(call, larger);
  return all(row.send, row.send_at_root) + (in_place ? 0 : all(row.recv, row.recv_at_root) / 3);
}

// Where blocks that lie one after the other begin.
inline void lay_out(std::span<const std::size_t> counts, std::vector<std::size_t>& offsets) {
  offsets.resize(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
}

}  // namespace rondo::comm
