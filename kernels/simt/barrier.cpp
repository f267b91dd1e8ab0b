// SPDX-License-Identifier: Apache-2.0
// Barriers of a block. All threads that meet must come from the same place of the source: on a GPU a divergent barrier
// may work or hang, here it is an error.
#include <cstring>

#include "kernels/simt/machine.hpp"

namespace rondo::simt {
namespace {

bool same(const SourceLocation& a, const SourceLocation& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

void check_arrival(Machine& machine, const Lane& lane, const Barrier& barrier, unsigned id, unsigned threads) {
  const unsigned lanes = lane.home->lane_count;
  if (id >= kBarriers) machine.fail(lane, "barrier %u: a block has %u", id, kBarriers);
  if (threads % kWarpLanes != 0 || threads > lanes) {
    machine.fail(lane, "barrier %u of %u threads: whole warps are needed, and the block has %u threads", id, threads,
                 lanes);
  }
  if (barrier.arrived == 0 || (same(barrier.place, lane.place) && barrier.expected == threads)) return;
  machine.fail(lane, "divergent barrier: %u threads wait at %s:%u", barrier.arrived, barrier.place.file,
               barrier.place.line);
}

}  // namespace

bool block_barrier(unsigned id, unsigned threads, bool vote, SourceLocation place) {
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  if (lane.explore) machine.scheduling_point(lane);
  Block& block = *lane.home;
  Barrier& barrier = block.barriers[id % kBarriers];
  lane.place = place;
  lane.barrier = id;
  lane.alone = false;
  check_arrival(machine, lane, barrier, id, threads);

  const unsigned parity = barrier.generation & 1;
  if (barrier.arrived == 0) {
    barrier.place = place;
    barrier.expected = threads;
    barrier.votes[parity] = false;
  }
  barrier.votes[parity] = barrier.votes[parity] || vote;
  machine.hand_to_block(lane);
  happens_before(&barrier.keys[parity]);
  if (++barrier.arrived < (threads != 0 ? threads : block.live)) {
    lane.state = LaneState::at_barrier;
    machine.run_next(lane);
  } else {
    machine.complete_barrier(block, barrier);
  }
  happens_after(&barrier.keys[parity]);
  const bool result = barrier.votes[parity];
  if (lane.explore) machine.scheduling_point(lane);
  return result;
}

void Machine::complete_barrier(Block& block, Barrier& barrier) {
  barrier.arrived = 0;
  ++barrier.generation;
  const auto id = static_cast<unsigned>(&barrier - block.barriers);
  for (unsigned t = 0; t < block.lane_count; ++t) {
    Lane& lane = block.lanes[t];
    if (lane.state == LaneState::at_barrier && lane.barrier == id) make_ready(lane);
  }
}

void Machine::leave_barriers(const Lane& lane) {
  Block& block = *lane.home;
  for (Barrier& barrier : block.barriers) {
    if (barrier.arrived == 0) continue;
    if (barrier.expected > block.live) {
      fail(lane, "%u threads wait at %s:%u for %u, of whom this one has returned", barrier.arrived, barrier.place.file,
           barrier.place.line, barrier.expected);
    }
    if (barrier.expected == 0 && barrier.arrived == block.live) complete_barrier(block, barrier);
  }
}

}  // namespace rondo::simt
