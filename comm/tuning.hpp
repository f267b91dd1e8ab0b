// SPDX-License-Identifier: Apache-2.0
// What measurement decides, as data. Rank 0's values are everybody's where a peer could notice a difference.
#pragma once
#include <cstdint>

namespace rondo::comm {

// Bytes are those of a rank's larger buffer unless said otherwise.
struct Tuning {
  // Ranks that share memory.
  std::uint64_t flat_bytes_of_two = 32 << 10;    // reductions up to here: everybody reads everything of everybody
  std::uint64_t flat_bytes = 4 << 10;            // the same with more ranks
  std::uint64_t chunk_bytes = 128 << 10;         // published at a time
  std::uint64_t ahead_bytes = 1 << 20;           // that a rank may have published and others not yet read
  std::uint64_t streaming_bytes = 8 << 20;       // results of calls from here on are stored past the caches
  std::uint64_t direct_bytes = 32 << 10;         // from here on, memory that peers can reach is used in place
  std::uint64_t single_copy_bytes = UINT64_MAX;  // from here on, process_vm_readv where it is permitted
  // Sockets.
  std::uint64_t stripe_bytes = 1 << 20;  // messages from here on are spread over all streams of a pair
};

}  // namespace rondo::comm
