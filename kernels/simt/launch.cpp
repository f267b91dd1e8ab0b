// SPDX-License-Identifier: Apache-2.0
// From a GridSpec to lanes that run, and from the last lane's end back to the caller.
#include <exception>

#include "kernels/simt/machine.hpp"

#ifdef RONDO_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace rondo::simt {
namespace {

constexpr char kUndefined = '\xA5';  // CUDA does not initialise shared memory
constexpr std::size_t kSharedAlignment = 128;

std::size_t shared_capacity(const Options& options) {
  return (options.shared_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
}

void allocate_shared(Block& block, std::size_t bytes) {
  block.shared.reset(static_cast<char*>(std::aligned_alloc(kSharedAlignment, bytes)));
  for (std::size_t i = 0; i < bytes; ++i) block.shared[i] = kUndefined;
#ifdef RONDO_SIMT_ASAN
  __asan_poison_memory_region(block.shared.get(), bytes);
#endif
}

void unpoison_shared(const Block& block, std::size_t bytes) {
#ifdef RONDO_SIMT_ASAN
  __asan_unpoison_memory_region(block.shared.get(), bytes);
#else
  (void)block, (void)bytes;
#endif
}

std::size_t stack_bytes(const Options& options) {
#ifdef RONDO_SIMT_ASAN
  return 2 * options.stack_bytes;
#else
  return options.stack_bytes;
#endif
}

// What the kernel threw, as text; "" if nothing. Ends before the lane does: an exception must not cross its stack.
void run_body(const GridSpec& spec, char* thrown, std::size_t bytes) {
  thrown[0] = 0;
  try {
    spec.body(spec.argument);
  } catch (const std::exception& error) {
    std::size_t length = 0;
    for (const char* text = error.what(); *text != 0 && length + 1 < bytes; ++text) thrown[length++] = *text;
    thrown[length] = 0;
  } catch (...) {
    thrown[0] = '?';
    thrown[1] = 0;
  }
}

void lane_main(void* owner) {
  Lane& lane = *static_cast<Lane*>(owner);
  Grid& grid = *lane.home->grid;
  happens_after(&grid.start_key);
  char thrown[128];
  run_body(grid.spec, thrown, sizeof thrown);
  if (thrown[0] != 0) running_machine().fail(lane, "the kernel threw: %s", thrown);
  if (lane.early) running_machine().fail(lane, "the lane ends and %s", kHasNotWaited);
  happens_before(&grid.end_key);
  running_machine().end(lane);
}

}  // namespace

Machine::Machine(const Options& chosen)
    : options(chosen), random(chosen.seed), picker_(options, random), idle_(options.watchdog_s) {}

Machine::~Machine() {
  for (const auto& grid : grids) {
    for (unsigned b = 0; b < grid->spec.blocks; ++b) {
      Block& block = grid->blocks[b];
      unpoison_shared(block, shared_capacity(options));
      for (unsigned t = 0; t < block.lane_count; ++t) {
        release(block.lanes[t].fiber, block.lanes[t].state == LaneState::done);
      }
    }
  }
}

int Machine::add_grid(const GridSpec& spec) {
  grids.push_back(std::make_unique<Grid>());
  Grid& grid = *grids.back();
  grid.spec = spec;
  lanes_ += std::size_t{spec.blocks} * spec.threads;
  ready_.reserve(lanes_);
  parked_.reserve(lanes_);
  build(grid);
  admit_blocks();
  happens_before(&grid.start_key);
  return static_cast<int>(grids.size()) - 1;
}

void Machine::build(Grid& grid) {
  const GridSpec& spec = grid.spec;
  picker_.prioritise(grid);
  grid.live = spec.blocks * spec.threads;
  live_ += grid.live;
  grid.blocks = std::make_unique<Block[]>(spec.blocks);
  for (unsigned b = 0; b < spec.blocks; ++b) {
    Block& block = grid.blocks[b];
    block.grid = &grid;
    block.index = b;
    block.lane_count = block.live = spec.threads;
    build(block);
    blocks_.push_back(&block);
  }
}

void Machine::build(Block& block) {
  const unsigned warps = (block.lane_count + kWarpLanes - 1) / kWarpLanes;
  block.lanes = std::make_unique<Lane[]>(block.lane_count);
  block.warps = std::make_unique<Warp[]>(warps);
  allocate_shared(block, shared_capacity(options));
  if (options.weak) block.stores.reserve(StoreBuffer::kBlockLimit);
  for (unsigned t = 0; t < block.lane_count; ++t) {
    Lane& lane = block.lanes[t];
    lane.thread = t;
    lane.block = block.index;
    lane.block_threads = block.lane_count;
    lane.grid_blocks = block.grid->spec.blocks;
    lane.rank = block.grid->spec.rank;
    lane.explore = options.explore;
    lane.weak = options.explore && options.weak;
    lane.early = block.grid->spec.early;
    lane.ended = block.grid->spec.ended;
    lane.watched = lane.explore || lane.early;
    lane.alone = true;
    lane.home = &block;
    lane.warp = &block.warps[t / kWarpLanes];
    if (lane.warp->lane_count++ == 0) lane.warp->lanes = &lane;
    if (lane.weak) lane.stores.reserve(StoreBuffer::kLaneLimit);
    acquire(lane.fiber, stack_bytes(options), lane_main, &lane);
  }
  picker_.prioritise(block);
}

void Machine::admit_blocks() {
  for (; admitted_ < blocks_.size(); ++admitted_, ++resident_) {
    if (options.resident_blocks != 0 && resident_ == options.resident_blocks) return;
    Block& block = *blocks_[admitted_];
    for (unsigned t = 0; t < block.lane_count; ++t) make_ready(block.lanes[t]);
  }
}

void Machine::end_block(Block& block) {
  --resident_;
  admit_blocks();
  Grid& grid = *block.grid;
  if (grid.live != 0) return;
  for (unsigned b = 0; b < grid.spec.blocks; ++b) let_out_all(grid.blocks[b]);
  if (options.incremental) pause_ = true;
}

void Machine::end(Lane& lane) {
  Block& block = *lane.home;
  lane.state = LaneState::done;
  --live_;
  --block.live;
  --block.grid->live;
  hand_to_block(lane);
  leave_warp(lane);
  leave_barriers(lane);
  if (block.live == 0) end_block(block);
  switch_to(lane.fiber, pick(), true);
  __builtin_unreachable();
}

Status Machine::run() {
  if (failure_.status != Status::ok || live_ == 0) return failure_.status;
  pause_ = stuck_ = false;
  idle_.reset();
  caller_ = Fiber{};
  adopt_thread(caller_);
  t_machine = this;
  if (Lane* first = pick(); first != nullptr) switch_to(caller_, first);
  t_machine = nullptr;
  if (failure_.status != Status::ok) {
    abandon_lanes();
  } else if (live_ != 0) {
    return stuck_ ? Status::deadlock : Status::paused;
  }
  for (const auto& grid : grids) happens_after(&grid->end_key);
  return failure_.status;
}

// What they have done comes before whatever the caller does next.
void Machine::abandon_lanes() {
  for (const auto& grid : grids) {
    for (unsigned b = 0; b < grid->spec.blocks; ++b) {
      const Block& block = grid->blocks[b];
      for (unsigned t = 0; t < block.lane_count; ++t) {
        happens_before_in(block.lanes[t].fiber, caller_, &grid->end_key);
      }
    }
  }
}

}  // namespace rondo::simt
