// SPDX-License-Identifier: Apache-2.0
// What the choices among ranks that share memory hang on beside the call and the tuning: the ranks, their machine, and
// what they learned of it when they came together. The same on all of them.
#pragma once
#include <cstddef>

namespace rondo::comm {

class Team;

// How every rank's ring is divided; bytes, offsets from its begin.
struct RingLayout {
  struct Stretch {
    std::size_t start = 0, bytes = 0;
  };
  Stretch reused;                // for calls that fill their places several times
  Stretch shared;                // for two ranks who hand places over; of more it is empty
  Stretch short_places, places;  // in turn
  std::size_t short_place = 0;   // the longest that turns among the short ones
  bool has_gaps = false;         // behind places

  std::size_t capacity() const;  // of one place: two fit, and what is left over at the ring's end
  // See Rings.
  std::size_t gap_behind(std::size_t bytes) const;
};
// crowded: ranks outnumber their cores.
RingLayout lay_out_ring(std::size_t ring_bytes, int ranks, bool crowded);

struct NodeFacts {
  int ranks = 1;
  int cores = 1;                   // that they are on, no more than ranks
  bool crowded = false;            // ranks outnumber cores
  bool copies_memory = false;      // the kernel does, between the processes of all
  double copied_page_us = 0;       // what a page of it costs
  bool copies_as_strings = false;  // the processor, see kernels
  RingLayout ring{};
};
NodeFacts facts_of(const Team& team);

}  // namespace rondo::comm
