// SPDX-License-Identifier: Apache-2.0
// The state of a Scheduler. One OS thread, inside run(), is all its lanes in turn, so nothing here is locked; the parts
// of the executor (barriers, warp operations, weak stores, ...) are functions on it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/simt/grid.hpp"
#include "kernels/simt/idle_wait.hpp"
#include "kernels/simt/lane_list.hpp"
#include "kernels/simt/policy.hpp"
#include "kernels/simt/random.hpp"
#include "kernels/simt/scheduler.hpp"

namespace rondo::simt {

inline constexpr char kHasNotWaited[] = "has not waited for what comes before its kernel on the stream";
inline constexpr char kNobodyCanRun[] = "no lane can run: each waits, and no word that one waits for has changed";

class Machine {
 public:
  explicit Machine(const Options& chosen);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  int add_grid(const GridSpec& spec);
  Status run();
  std::string report() const;
  std::uint64_t now_ns() const;

  // ---- by lanes
  void scheduling_point(Lane& lane);
  void park(Lane& lane, const Watch* watches, unsigned count);
  void wake(const void* word);  // whoever watches its line
  void make_ready(Lane& lane);
  void run_next(Lane& waiting);  // comes back when somebody has made it ready and it is its turn
  [[noreturn]] void end(Lane& lane);
  [[noreturn, gnu::format(printf, 3, 4)]] void fail(const Lane& lane, const char* format, ...);

  // ---- weak_stores.cpp
  void let_out_one(Block& block);
  void let_out_one(Lane& lane);
  void let_out_all(Block& block);
  void let_out_by_chance(Lane& lane);
  void hand_to_block(Lane& lane);

  // ---- barrier.cpp, warp.cpp: who waits for a lane that has ended
  void complete_barrier(Block& block, Barrier& barrier);
  void leave_barriers(const Lane& lane);
  void leave_warp(const Lane& lane);

  const Options options;
  Random random;
  std::vector<std::unique_ptr<Grid>> grids;
  std::uint64_t steps = 0, switches = 0;

 private:
  struct Failure {
    Status status = Status::ok;
    const Lane* lane = nullptr;
    char why[256] = "";
  };
  [[gnu::format(printf, 4, 5)]] void stop(Status status, const Lane* lane, const char* format, ...);

  void build(Grid& grid);
  void build(Block& block);
  void admit_blocks();
  void end_block(Block& block);
  void switch_to(Fiber& from, Lane* to, bool for_good = false);  // null: run()'s caller
  Lane* pick();                                                  // null: back to run()'s caller
  bool let_out_any();
  void make_visible(const PendingStore& store);
  bool wake_somebody();
  bool jump_clock();
  bool wait_outside();
  bool is_cancelled();
  bool poll_parked();
  void let_lanes_look();
  void unpark(Lane& lane);
  void abandon_lanes();
  std::string head() const;

  LanePicker picker_;
  IdleWait idle_;
  LaneList ready_, parked_;
  std::vector<Block*> blocks_;  // in the order of their launch
  std::size_t admitted_ = 0;    // of blocks_
  unsigned resident_ = 0;
  std::size_t lanes_ = 0, live_ = 0;
  std::uint64_t clock_jumps_ns_ = 0;
  unsigned picks_ = 0;
  bool pause_ = false, stuck_ = false;
  Failure failure_;
  Fiber caller_;
};

extern constinit thread_local Machine* t_machine;
inline Machine& running_machine() { return *t_machine; }
inline Lane& running_lane() { return *static_cast<Lane*>(t_lane); }

}  // namespace rondo::simt
