// SPDX-License-Identifier: Apache-2.0
// The shape of a link's FIFO, and what it must be for every algorithm to end.
#pragma once
#include <cstddef>

namespace rondo::kernels {

struct LinkLayout {
  std::size_t slice = 1;  // elements of one slot, published at once
  int slices_per_chunk = 1;
  int slots = 2;

  constexpr std::size_t chunk_capacity() const { return slice * static_cast<std::size_t>(slices_per_chunk); }
  // In a ring every rank sends a chunk before it receives one, so all links may hold a chunk each; a fused Move then
  // needs a free slot to put a slice into before the one it takes out becomes free.
  constexpr bool is_sound() const { return slice > 0 && slices_per_chunk > 0 && slots >= slices_per_chunk + 1; }
};
static_assert(LinkLayout{}.is_sound());

}  // namespace rondo::kernels
