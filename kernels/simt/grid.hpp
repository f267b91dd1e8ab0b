// SPDX-License-Identifier: Apache-2.0
// What a launch is made of: grids of blocks of warps of lanes. Built before the lanes run and never reallocated: what a
// lane allocates, ThreadSanitizer would take for that lane's.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "kernels/simt/fiber.hpp"
#include "kernels/simt/lane_api.hpp"
#include "kernels/simt/scheduler.hpp"
#include "kernels/simt/weak_stores.hpp"

namespace rondo::simt {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kBarriers = 16;  // of a block, as in CUDA

enum class LaneState : std::uint8_t { not_resident, ready, running, parked, at_barrier, in_warp, done };

struct Block;
struct Grid;
struct Warp;

struct Lane : LaneHead {
  Fiber fiber;
  Block* home = nullptr;
  Warp* warp = nullptr;
  std::uint64_t* priority = nullptr;  // of its unit; see Options::policy
  std::uint64_t own_priority = 0;
  std::uint32_t list_index = 0;  // in the list of ready or of parked lanes
  LaneState state = LaneState::not_resident;

  // parked: the watches lie on its own stack
  const Watch* watches = nullptr;
  unsigned watch_count = 0;
  const std::uint32_t* abort = nullptr;
  Watch last_watch;  // what it waited for before it last looked at the clock

  // at_barrier, in_warp
  SourceLocation place;
  unsigned barrier = 0;
  WarpOperation operation = WarpOperation::sync;
  unsigned source = 0;
  std::uint64_t value = 0, result = 0;

  StoreBuffer stores;
};

struct Warp {
  Lane* lanes = nullptr;
  unsigned lane_count = 0, arrived = 0, returned = 0;
  unsigned generation = 0;
  const Lane* first = nullptr;  // of those that have arrived
  char keys[2];                 // of happens-before edges; two, or who leaves late would inherit from the next round
  std::uint64_t priority = 0;
};

struct Barrier {
  unsigned arrived = 0, expected = 0;  // expected 0: all live lanes of the block
  unsigned generation = 0;
  char keys[2];
  bool votes[2] = {};
  SourceLocation place;
};

struct SharedVariable {
  const void* key;
  std::size_t offset;
};
inline constexpr unsigned kSharedVariables = 32;

struct FreeDeleter {
  void operator()(char* memory) const { std::free(memory); }
};

struct Block {
  Grid* grid = nullptr;
  std::unique_ptr<Lane[]> lanes;
  std::unique_ptr<Warp[]> warps;
  unsigned index = 0, lane_count = 0, live = 0;
  Barrier barriers[kBarriers];
  std::unique_ptr<char[], FreeDeleter> shared;
  SharedVariable variables[kSharedVariables];
  unsigned variable_count = 0;
  std::size_t shared_used = 0;
  std::uint64_t priority = 0;
  StoreBuffer stores;
};

struct Grid {
  GridSpec spec;
  std::unique_ptr<Block[]> blocks;
  unsigned live = 0;  // lanes
  std::uint64_t priority = 0;
  char start_key, end_key;
};

}  // namespace rondo::simt
