// SPDX-License-Identifier: Apache-2.0
#include "comm/node/policy/node_facts.hpp"

#include <algorithm>
#include <cstdint>

#include "comm/node/policy/thresholds.hpp"
#include "comm/team/team.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

std::size_t whole_lines(std::size_t bytes) { return bytes / kLine * kLine; }

}  // namespace

std::size_t RingLayout::capacity() const { return whole_lines(places.bytes / 3); }

std::size_t RingLayout::gap_behind(std::size_t bytes) const {
  return has_gaps ? whole_lines(std::clamp(bytes / 4, threshold::kLeastGap, threshold::kMostGap)) : 0;
}

// Short places turn in a stretch of their own, so that they touch few pages. Where ranks take turns on cores it is
// longer: most readers are on the writer's own core, and what all of them read and write turns within the caches
// nearest to the cores.
RingLayout lay_out_ring(std::size_t ring_bytes, int ranks, bool crowded) {
  RingLayout ring;
  ring.reused = {0, whole_lines(ring_bytes / 3)};
  ring.shared = {ring.reused.bytes, ranks == 2 ? whole_lines(ring_bytes / 6) : 0};
  ring.short_places = {ring.shared.start + ring.shared.bytes,
                       whole_lines(std::min(crowded ? SIZE_MAX : threshold::kShortStretch, ring_bytes / 6))};
  const std::size_t behind = ring.short_places.start + ring.short_places.bytes;
  ring.places = {behind, whole_lines(ring_bytes - behind)};
  ring.short_place = crowded ? ring.short_places.bytes / threshold::kShortTurnsOfCrowd
                             : std::min(threshold::kShortPlace, ring.short_places.bytes / 16);
  ring.has_gaps = !crowded;
  return ring;
}

NodeFacts facts_of(const Team& team) {
  const int ranks = team.segment().local_size();
  const bool crowded = team.crowded();
  return {.ranks = ranks,
          .cores = std::min(team.cores(), ranks),
          .crowded = crowded,
          .copies_memory = team.copies_memory(),
          .copied_page_us = team.copied_page_us(),
          .copies_as_strings = kernels::copies_as_strings(),
          .ring = lay_out_ring(team.segment().shape().ring_bytes, ranks, crowded)};
}

}  // namespace rondo::comm
