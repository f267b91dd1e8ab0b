// SPDX-License-Identifier: Apache-2.0
// Operations by all lanes of a warp. Lanes are independent, as on Volta and later: they meet here and nowhere else, and
// must come from the same place of the source.
#include "kernels/simt/machine.hpp"

namespace rondo::simt {
namespace {

unsigned index_in(const Warp& warp, const Lane& lane) { return static_cast<unsigned>(&lane - warp.lanes); }

void check_arrival(Machine& machine, const Warp& warp, const Lane& lane) {
  for (unsigned i = 0; i < warp.lane_count && warp.returned != 0; ++i) {
    if (warp.lanes[i].state != LaneState::done) continue;
    machine.fail(lane, "the warp meets here without lane %u, which has returned", i);
  }
  if (warp.arrived == 0) return;
  const Lane& first = *warp.first;
  if (first.operation == lane.operation && first.place.line == lane.place.line) return;
  machine.fail(lane, "mismatched warp operation: lane %u is at %s:%u", index_in(warp, first), first.place.file,
               first.place.line);
}

std::uint64_t ballot_of(const Warp& warp) {
  std::uint64_t bits = 0;
  for (unsigned i = 0; i < warp.lane_count; ++i) bits |= std::uint64_t{warp.lanes[i].value != 0} << i;
  return bits;
}

std::uint64_t result_of(const Warp& warp, unsigned index, std::uint64_t ballot) {
  const Lane& lane = warp.lanes[index];
  if (lane.operation == WarpOperation::ballot) return ballot;
  const bool has_source = lane.operation == WarpOperation::shuffle && lane.source < warp.lane_count;
  return warp.lanes[has_source ? lane.source : index].value;
}

void complete(Machine& machine, Warp& warp) {
  warp.arrived = 0;
  ++warp.generation;
  const std::uint64_t bits = ballot_of(warp);
  for (unsigned i = 0; i < warp.lane_count; ++i) warp.lanes[i].result = result_of(warp, i, bits);
  for (unsigned i = 0; i < warp.lane_count; ++i) {
    Lane& lane = warp.lanes[i];
    if (lane.state == LaneState::in_warp) machine.make_ready(lane);
  }
}

}  // namespace

std::uint64_t warp_meet(WarpOperation operation, std::uint64_t value, unsigned source, SourceLocation place) {
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  if (lane.explore) machine.scheduling_point(lane);
  Warp& warp = *lane.warp;
  lane.operation = operation;
  lane.value = value;
  lane.source = source % kWarpLanes;
  lane.place = place;
  check_arrival(machine, warp, lane);

  const char* key = &warp.keys[warp.generation & 1];
  const bool orders_memory = operation == WarpOperation::sync;
  if (orders_memory) {
    lane.alone = false;
    happens_before(key);
    machine.hand_to_block(lane);
  }
  if (warp.arrived == 0) warp.first = &lane;
  if (++warp.arrived < warp.lane_count) {
    lane.state = LaneState::in_warp;
    machine.run_next(lane);
  } else {
    complete(machine, warp);
  }
  if (orders_memory) happens_after(key);
  const std::uint64_t result = lane.result;
  if (lane.explore) machine.scheduling_point(lane);
  return result;
}

void Machine::leave_warp(const Lane& lane) {
  Warp& warp = *lane.warp;
  ++warp.returned;
  if (warp.arrived == 0) return;
  fail(lane, "lane %u of this warp waits for all of it at %s:%u, but this lane has returned",
       index_in(warp, *warp.first), warp.first->place.file, warp.first->place.line);
}

}  // namespace rondo::simt
