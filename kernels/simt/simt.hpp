// SPDX-License-Identifier: Apache-2.0
// Host SIMT executor: every CUDA thread ("lane") is a fiber.
// A Sched owns the lanes of one or more grids and runs them on ONE OS thread.
//   * deterministic exploration : all grids of all ranks in one Sched, external=false
//   * concurrent execution      : one Sched per rank (stream worker thread or process), external=true
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace rondo::simt {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

enum class Policy : uint8_t { RoundRobin, Random, PctLane, PctWarp, PctBlock, PctRank };
enum class Status : uint8_t { Ok, Deadlock, Timeout, StepLimit, Misuse, Yield };
const char* to_string(Status);
const char* to_string(Policy);

struct Options {
  Policy policy = Policy::RoundRobin;
  uint64_t seed = 0;
  bool explore = false;        // every seam operation is a scheduling point
  bool external = false;       // other OS threads / processes may change watched memory
  bool weak = false;           // explore: relaxed stores become visible late and out of order
  unsigned switch_pct = 25;    // Random: chance of a switch at a scheduling point
  unsigned pct_depth = 8;      // PCT: number of priority change points ...
  uint64_t pct_steps = 20000;  // ... spread over this many scheduling points
  uint64_t max_steps = 0;      // 0: none (explore livelock guard)
  bool incremental = false;    // run() also returns (Yield) when a grid has finished or by chance
  unsigned host_slice = 0;     // incremental: chance in 10000 of that at a scheduling point
  double watchdog_s = 30;      // external mode: give up after this long without progress
  size_t stack_bytes = 64 * 1024;
  size_t static_shared = 16384;  // arena for __shared__ variables, a multiple of 128
};

// 16 bytes of watched memory: a parked lane becomes ready when *addr != seen.
struct Watch {
  const void* addr;
  uint32_t size;
  alignas(16) unsigned char seen[16];
};

struct Lane;  // opaque; the first fields are public for the seam
struct LaneHead {
  Dim3 tid, bid, bdim, gdim;
  unsigned linear_tid;
  int rank;
  bool explore, weak;
};
extern thread_local LaneHead* t_lane;  // null on the host side

// ---- called by the device seam (never by host code) ----
void yield_point();             // explore: maybe run somebody else
void stored(const void* addr);  // explore: wake lanes watching this line
void park(const void* addr, const void* seen, uint32_t size, const uint32_t* abort_flag);
void park_any(const Watch* watches, unsigned count, const uint32_t* abort_flag);  // count >= 1; until one changes
bool barrier(unsigned id, unsigned nthreads, bool pred, const char* file, unsigned line);  // or of all preds
enum class Coll : uint8_t { Sync, Shfl, ShflXor, ShflDown, Ballot, Line128Store, Line128Load };
uint64_t warp_collective(Coll, uint32_t mask, uint64_t value, uint32_t arg, const char* file, unsigned line);
void* static_shared(const void* key, size_t size, size_t align);
void* dyn_shared();
// weak mode: a relaxed store waits in the lane's buffer (after a barrier: in the block's) until a release by
// the lane (block) or until chance lets it out; same-address order is kept, everything else may be reordered.
void weak_store(void* addr, uint32_t size, uint64_t value);
bool weak_forward(const void* addr, uint32_t size, uint64_t* value);  // own (or block's) latest buffered value
void weak_release();                                                  // before a release store or RMW
uint64_t timer_ns();  // one clock for all; while exploring, the number of steps
[[noreturn]] void trap(const char* why);
uint64_t rng();                    // seeded, for the seam's own choices (tearing)
void hb_release(const void* key);  // TSan happens-before edges, no-ops otherwise
void hb_acquire(const void* key);

// ---- host side ----
class Sched {
 public:
  explicit Sched(const Options&);
  ~Sched();
  Sched(const Sched&) = delete;
  Sched& operator=(const Sched&) = delete;
  // fn(arg) is run by every lane; arg must outlive run().
  int add_grid(const char* name, int rank, Dim3 grid, Dim3 block, size_t shmem, void (*fn)(void*), void* arg);
  Status run();                // until every lane has returned, or a failure
  bool done(int grid) const;   // incremental: has this grid finished?
  std::string report() const;  // what went wrong, with policy, seed and where each lane waits
  uint64_t steps() const;
  uint64_t switches() const;
  struct Impl;

 private:
  Impl* p_;
};

}  // namespace rondo::simt
