// SPDX-License-Identifier: Apache-2.0
#include "comm/board/rings.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rondo::comm {
namespace {

constexpr std::size_t kShortBytes = 256 << 10;
constexpr std::size_t kShortPlace = 2 << 10;

}  // namespace

Rings::Rings(Segment segment, int own_index, bool crowded)
    : segment_(segment),
      own_(own_index),
      crowded_(crowded),
      window_{.start = 0, .bytes = whole_lines(segment.shape().ring_bytes / 3)},
      shared_{.start = window_.bytes,
              .bytes = segment.local_size() == 2 ? whole_lines(segment.shape().ring_bytes / 6) : 0},
      shared_turn_{.start = shared_.start, .bytes = shared_.bytes / 2},
      short_{.start = shared_.start + shared_.bytes,
             .bytes =
                 whole_lines(std::min<std::size_t>(crowded ? SIZE_MAX : kShortBytes, segment.shape().ring_bytes / 6))},
      long_{.start = short_.start + short_.bytes,
            .bytes = whole_lines(segment.shape().ring_bytes - short_.start - short_.bytes)},
      short_place_(crowded ? short_.bytes / 4 : std::min(kShortPlace, short_.bytes / 16)) {}

// Short places turn in a stretch of their own, so that they touch few pages. What longer ones overwrite must have left
// the readers' caches, or each line waits until a reader's core has given it up. Where ranks take turns on cores, most
// are on the writer's own, and what all of them read and write turns within the caches nearest to the cores.
std::size_t Rings::reserve(std::size_t bytes) {
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  if (rounded <= short_place_) return take(short_, rounded);
  return take(long_, rounded, gap_behind(rounded));
}

std::size_t Rings::gap_behind(std::size_t bytes) const {
  constexpr std::size_t kLeast = 1 << 10, kMost = 8 << 10;
  return crowded_ ? 0 : whole_lines(std::clamp(bytes / 4, kLeast, kMost));
}

std::size_t Rings::reserve_window() { return take(window_, window_.bytes); }

std::size_t Rings::reserve_shared() { return take(shared_, shared_.bytes); }

// In half of it: few calls are enough that a place has rested when it comes round again, and two ranks' halves and
// their buffers are as much as a core's second-level cache holds.
std::size_t Rings::reserve_shared_in_turn(std::size_t bytes) {
  constexpr std::size_t kLeastTurns = 4;
  return bytes <= shared_turn_.bytes / kLeastTurns ? take(shared_turn_, bytes) : reserve_shared();
}

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
