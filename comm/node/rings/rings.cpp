// SPDX-License-Identifier: Apache-2.0
#include "comm/node/rings/rings.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace rondo::comm {

Rings::Rings(Segment segment, int own_index, bool crowded)
    : segment_(segment),
      own_(own_index),
      layout_(lay_out_ring(segment.shape().ring_bytes, segment.local_size(), crowded)),
      reused_{.start = layout_.reused.start, .bytes = layout_.reused.bytes},
      shared_{.start = layout_.shared.start, .bytes = layout_.shared.bytes},
      shared_turn_{.start = layout_.shared.start, .bytes = layout_.shared.bytes / 2},
      short_{.start = layout_.short_places.start, .bytes = layout_.short_places.bytes},
      long_{.start = layout_.places.start, .bytes = layout_.places.bytes} {}

// What longer places overwrite must have left the readers' caches, or each line waits until a reader's core has given
// it up.
std::size_t Rings::reserve(std::size_t bytes) {
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  if (rounded <= layout_.short_place) return take(short_, rounded);
  return take(long_, rounded, gap_behind(rounded));
}

std::size_t Rings::reserve_reused() { return take(reused_, reused_.bytes); }

std::size_t Rings::reserve_shared() { return take(shared_, shared_.bytes); }

// In half of it: few calls are enough that a place has rested when it comes round again, and two ranks' halves and
// their buffers are as much as a core's second-level cache holds.
std::size_t Rings::reserve_shared_in_turn(std::size_t bytes) { return take(shared_turn_, bytes); }

// At the end of the stretch the gap goes before it begins anew: what was reserved just before may lie there.
std::size_t Rings::take(Turn& turn, std::size_t bytes, std::size_t gap) {
  if (!std::exchange(turn.populated, true)) populate(turn);
  const std::size_t from = turn.end + bytes > turn.bytes ? 0 : std::min(turn.end + gap, turn.bytes - bytes);
  turn.end = from + bytes;
  return turn.start + from;
}

// A page at a time, the first touch costs more than what is written there. Only advice: a kernel that cannot do it
// leaves the pages to be touched one by one.
void Rings::populate(const Turn& turn) {
#if defined(MADV_POPULATE_WRITE)
  const int size = segment_.local_size();
  for (int step = 0; step < size; ++step) {
    std::byte* start = segment_.ring((own_ + step) % size) + turn.start;
    static_cast<void>(::madvise(start, turn.bytes, step == 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ));
  }
#else
  static_cast<void>(turn);
#endif
}

}  // namespace rondo::comm
