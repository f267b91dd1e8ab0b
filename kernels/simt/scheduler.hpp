// SPDX-License-Identifier: Apache-2.0
// The host SIMT executor. A Scheduler owns the lanes (CUDA threads, each a fiber) of one or more grids and runs them on
// the OS thread that calls run(). Two uses: all ranks' grids in one Scheduler, explored under a seed; or one Scheduler
// per launch (`external`), other OS threads and processes being the other ranks.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rondo::simt {

// Who runs next. pct_…: random priorities that drop at a few random points (Burckhardt et al., A Randomized Scheduler
// with Probabilistic Guarantees of Finding Bugs, 2010), one per lane, warp, block or rank.
enum class Policy : std::uint8_t { round_robin, random, pct_lane, pct_warp, pct_block, pct_rank };
inline constexpr int kPolicyCount = 6;

enum class Status : std::uint8_t {
  ok,          // every lane has returned
  deadlock,    // no lane can run
  timeout,     // external: nothing has moved for watchdog_s
  step_limit,  // max_steps
  misuse,      // a kernel broke a rule of CUDA, trapped or threw
  paused,      // incremental: run() may be called again
  cancelled    // external: *cancel was true
};

const char* name_of(Policy);
const char* name_of(Status);

struct Options {
  Policy policy = Policy::round_robin;
  std::uint64_t seed = 0;
  bool explore = false;                // every seam operation is a scheduling point
  bool external = false;               // other OS threads or processes may change watched memory
  bool weak = false;                   // explore: relaxed stores become visible late and out of order
  unsigned switch_percent = 25;        // random: chance of a switch at a scheduling point
  unsigned pct_changes = 8;            // pct: priorities drop so often ...
  std::uint64_t pct_steps = 20000;     // ... within about so many scheduling points
  std::uint64_t max_steps = 0;         // 0: no limit
  std::uint64_t idle_clock_ns = 0;     // explore: when no lane can run, the clock jumps on, up to here, before it is a
                                       // deadlock: waiting lanes look at their deadlines
  unsigned resident_blocks = 0;        // at the same time, of all grids; 0: no limit. Later blocks wait for an end
  bool incremental = false;            // run() also returns when a grid ends, when stuck, and by pause_per_10000
  unsigned pause_per_10000 = 0;        // incremental: chance of that at a scheduling point
  unsigned watchdog_s = 600;           // external
  std::size_t stack_bytes = 64 << 10;  // of a lane; doubled under AddressSanitizer
  std::size_t shared_bytes = 16384;    // of a block's RONDO_SHARED variables
  bool (*may_exchange)(const void* word) = nullptr;  // null: all words. By lanes
  // external: once true, all lanes are given up.
  const std::atomic<bool>* cancel = nullptr;
};

struct GridSpec {
  const char* name = "kernel";
  int rank = 0;
  unsigned blocks = 1, threads = 32;
  void (*body)(void* argument) = nullptr;  // run by every lane
  void* argument = nullptr;                // outlives run()
  // May begin before what comes before it on its stream has ended. A lane that uses memory, or returns, before it has
  // waited for that is a misuse, whether or not it has ended.
  bool early = false;
  const std::uint32_t* ended = nullptr;  // early, external: not 0 when that has ended. null: it has
};

class Machine;

class Scheduler {
 public:
  explicit Scheduler(const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  int add_grid(const GridSpec& spec);  // its number; between runs only
  Status run();                        // until every lane has returned or one has failed; failed lanes never go on
  bool is_done(int grid) const;
  std::string report() const;   // what went wrong, the policy, seed and step, and where the lanes of each block wait
  std::uint64_t steps() const;  // scheduling points passed; the same for the same seed
  std::uint64_t switches() const;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace rondo::simt
